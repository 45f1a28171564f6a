"""An engine written down a second time, plainly: one step at a time, every block by its number, no counting."""

import numpy as np

from codesign.simulation.serving import Engine, Requests


class PlainEngine:
    """Each sequence holds a list of block numbers; blocks are handed out from one list."""

    def __init__(self, engine: Engine, requests: Requests):
        self.engine, self.requests, self.now = engine, requests, 0.0
        self.free = list(range(engine.blocks))
        self.waiting, self.prompts, self.decodes = [], [], []  # dictionaries
        self.order = 0
        self.first, self.last = {}, {}
        self.most_used = self.preempted = 0

    def serve(self, concurrency=None):
        requests, came = self.requests, {}
        following = 0

        def add(request):
            came[request] = self.now if concurrency else requests.arrivals[request]
            prompt, outputs = int(requests.prompts[request]), int(requests.outputs[request])
            self.waiting.append({"request": request, "tokens": prompt, "outputs": outputs})

        for _ in range(concurrency or 0):
            add(following)
            following += 1
        while len(self.last) < len(requests):
            while not concurrency and following < len(requests) and requests.arrivals[following] <= self.now:
                add(following)
                following += 1
            ended = self.step()
            if ended is None:
                self.now = requests.arrivals[following]
                continue
            for _ in ended:
                if concurrency and following < len(requests):
                    add(following)
                    following += 1
        count = range(len(requests))
        return np.array([self.first[i] for i in count]), np.array([self.last[i] for i in count])

    def blocks_of(self, tokens):
        return -(-tokens // self.engine.block_tokens)

    def admit(self):
        engine, spare = self.engine, int(self.engine.blocks * self.engine.watermark)
        while self.waiting and len(self.prompts) + len(self.decodes) < engine.sequences:
            one = self.waiting[0]
            pending = sum(p["tokens"] - p["done"] for p in self.prompts)
            if pending >= min(engine.budget - len(self.decodes), engine.chunk):
                return
            need = self.blocks_of(one["tokens"])
            if len(self.free) - need < (spare if self.prompts or self.decodes else 0):
                return
            self.waiting.pop(0)
            held = [self.free.pop() for _ in range(need)]
            self.order += 1
            self.prompts.append(one | {"done": 0, "held": held, "order": self.order})

    def step(self):
        """One step; requests that ended, None where there was nothing to do."""
        self.admit()
        if not self.prompts and not self.decodes:
            return None
        size, times = self.engine.block_tokens, self.engine.times
        while sum(d["stored"] % size == 0 for d in self.decodes) > len(self.free):
            self.preempt()
        for decode in self.decodes:
            if decode["stored"] % size == 0:
                decode["held"].append(self.free.pop())
            assert len(decode["held"]) == self.blocks_of(decode["stored"] + 1)
        owners = [block for one in (*self.prompts, *self.decodes) for block in one["held"]]
        assert len(owners) == len(set(owners)) == self.engine.blocks - len(self.free)
        self.most_used = max(self.most_used, len(owners))
        room, pairs, tokens = min(self.engine.budget - len(self.decodes), self.engine.chunk), 0.0, 0
        for prompt in self.prompts:
            part = min(prompt["tokens"] - prompt["done"], room - tokens)
            pairs += part * (prompt["done"] + 0.5 * part)
            prompt["done"] += part
            tokens += part
        count = len(self.decodes)
        seconds = times.linear_s(count, tokens) + times.pair_s * pairs
        seconds += sum(d["stored"] for d in self.decodes) * (times.context_s(count) if count else 0.0)
        self.now += seconds + self.engine.host_s + self.engine.host_sequence_s * count
        ended = []
        for decode in self.decodes:
            decode["stored"] += 1
            decode["left"] -= 1
        for prompt in [p for p in self.prompts if p["done"] == p["tokens"]]:
            self.prompts.remove(prompt)
            self.first.setdefault(prompt["request"], self.now)
            joined = prompt | {"stored": prompt["tokens"], "left": prompt["outputs"] - 1}
            self.decodes.append(joined)
        for decode in [d for d in self.decodes if d["left"] == 0]:
            self.decodes.remove(decode)
            self.free += decode["held"]
            self.last[decode["request"]] = self.now
            ended.append(decode["request"])
        return ended

    def preempt(self):
        """The last one admitted gives its blocks back and is computed again, first of those who wait."""
        victim = max((*self.prompts, *self.decodes), key=lambda one: one["order"])
        self.free += victim["held"]
        self.preempted += 1
        if victim in self.prompts:
            self.prompts.remove(victim)
            again = {"tokens": victim["tokens"], "outputs": victim["outputs"]}
        else:
            self.decodes.remove(victim)
            again = {"tokens": victim["stored"] + 1, "outputs": victim["left"]}
        self.waiting.insert(0, {"request": victim["request"]} | again)
