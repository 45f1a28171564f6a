"use strict";
// Search of pages opened from a folder: browsers start no worker there, so its script runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(address) {
      super();
      const frame = document.createElement("iframe"), waiting = [];
      frame.hidden = true;
      frame.srcdoc = "<script>self.postMessage = (data) => parent.postMessage(data, '*');</script>" +
        "<script src='" + encodeURI(String(new URL(address, document.baseURI))) + "'></script>";
      this.postMessage = (data) => waiting.push(data);
      frame.addEventListener("load", () => {
        this.postMessage = (data) => postMessage.call(frame.contentWindow, data, "*"); // its own one leads here
        waiting.forEach(this.postMessage);
      });
      addEventListener("message", (event) => {
        if (event.source === frame.contentWindow) this.dispatchEvent(new MessageEvent("message", { data: event.data }));
      });
      document.body.append(frame);
    }

    terminate() {}
  };
}
