"""Help texts: the group of each command, one line, three lines of prose, and examples.

`codesign --help` shows groups and lines, `codesign COMMAND --help` prose and the first examples, and
`docs/reference/cli.md`, which `docs/make_cli.py` writes, everything.
"""

from typing import NamedTuple


class CommandHelp(NamedTuple):
    """Help for one command.

    summary: one line, for the list of commands. about: three lines of prose, of at most 79 characters. examples: pairs
    of (command, what it does); words in capitals stand for what a reader fills in. notes: a block of text below them.
    """

    summary: str
    about: tuple[str, str, str]
    examples: tuple[tuple[str, str], ...]
    notes: str = ""


GROUPS = {
    "ask a plain question": ("serve", "fleet", "train", "buy"),
    "choose and design": ("list", "evaluate", "fit", "compare", "optimize", "explore"),
    "read a run": ("report", "sql"),
    "check the answer": ("verify", "observe", "import", "validate", "reproduce"),
    "launch and operate": ("export", "simulate", "autoscale"),
    "fit to measurements": ("calibrate", "train-amortised"),
    "extend": ("scaffold", "check-plugin"),
}
"""Commands by what a user wants to do."""

EXAMPLES_IN_HELP = 3
"""Examples that `codesign COMMAND --help` shows."""

START = (
    ("see what there is", "codesign list accelerator"),
    ("price one design", "codesign evaluate accelerator=h200 model=llama31_70b"),
    ("compare products", "codesign compare accelerator=h100_sxm,h200 model=llama31_70b workload=serving"),
    ("find the best", "codesign optimize"),
    ("all commands", "codesign --help"),
)
"""Commands for a first session."""

OVERRIDE_NOTES = """overrides:
  accelerator=b200 model=llama31_70b        files of conf/ (`codesign list` shows them)
  objective.limits.tpot_s=50ms              a limit, with a unit or in SI; =null removes it
  'objective.minimise=time_s * capex_usd'   a goal: any expression over metrics
  'space.plan.device_count=[256,512]'       values of a plan field to choose from
  'space.hardware.energy={path: cluster.network.scale_up.fabric.energy_j_per_byte,
    low: 1e-12, high: 1e-9}'                a hardware number to vary within a range
  '~space.hardware.hbm_to_ddr'              one that is not varied
  search=pareto                             another search; --cfg job shows all settings"""

COMMANDS = {
    "serve": CommandHelp(
        "say what to buy to serve a model, how many, and what it costs",
        (
            "Finds the proven least cost of serving a model at a rate within limits, on each",
            "named accelerator, among all layouts that its engine runs: count, plan, $.",
            "Shows what it assumed and how to change it; any override may follow.",
        ),
        (
            ("codesign serve llama31_70b --on h200,b200 --rate 30/s --ttft-p99 2s --tpot-p99 50ms", "two products"),
            (
                "codesign serve deepseek-ai/DeepSeek-R1 --on b200,gb200 --rate 30/s --format fp8 --pools both",
                "prompts beside decodes, or on a pool of their own",
            ),
            (
                "codesign serve llama31_70b --on h200 --trace requests.csv --tpot-p99 50ms --budget $5M",
                "lengths and rate of a trace",
            ),
            (
                "codesign serve llama31_8b --on h200 --rate 5/s --region europe-west4",
                "rented, at the prices of a region",
            ),
            (
                "codesign serve llama31_70b --on h200 --rate 30/s --api in=0.27,cached=0.07,out=1.10",
                "own, or an API at these prices: cost by load, and from which load on owning pays",
            ),
            ("codesign serve llama31_8b --on l40s,h100_sxm --tpot 30ms", "the cheapest replica, whatever the demand"),
            ("codesign serve llama31_70b --on h200 --rate 30/s --show-config", "the commands that it stands for"),
        ),
    ),
    "fleet": CommandHelp(
        "say which class of requests runs on which kind of accelerator",
        (
            "Prices every plan for every class of requests on every kind, then finds the",
            "proven least cost of whole replicas and boxes, those that are owned among them,",
            "and what a request, a millisecond of a limit and a device more are worth.",
        ),
        (
            (
                "codesign fleet llama31_70b --on h100_sxm,b200 --own h100_sxm=32"
                " --class chat:rate=20/s,input=800,output=300,ttft_p99=500ms,tpot_p99=50ms"
                " --class batch:rate=5/s,input=4000,output=1000,ttft_p99=30s,tpot_p99=200ms",
                "H100 that are there already, B200 to buy",
            ),
            (
                "codesign fleet llama31_70b --on h200,b200 --trace requests.csv --class chat:ttft_p99=1s,tpot_p99=50ms",
                "rates and lengths of a trace whose column class says chat",
            ),
            (
                "codesign fleet llama31_8b --on l40s,h100_sxm"
                " --class chat:rate=50/s,input=800,output=300,ttft_p99=1s,tpot_p99=60ms"
                " --confidence 0.9 --requests 5000",
                "kept in nine of ten draws of the model's errors, and replayed",
            ),
        ),
    ),
    "train": CommandHelp(
        "say what to buy to train a model in time, how many, and what it costs",
        (
            "Finds the proven least cost of training a model on so many tokens in so many",
            "days, on each of the named accelerators: how many devices, which plan, cost.",
            "Shows what it assumed and how to change it; any override may follow.",
        ),
        (
            ("codesign train llama31_70b --tokens 15T --days 90d --on h100_sxm,b200", "two products"),
            ("codesign train llama31_8b --tokens 1T --days 30d --on h200 --format fp8 --power 2MW", "within a power"),
            (
                "codesign train llama31_70b --tokens 15T --days 90d --on b200 --show-config",
                "the commands that it stands for",
            ),
        ),
    ),
    "buy": CommandHelp(
        "say which product to buy for several jobs together, over its life",
        (
            "Answers each job as `codesign serve` and `codesign train` do, on each of the",
            "named accelerators; adds up devices, capital, power, cost over the horizon.",
            "Every job has devices of its own; its answer, page and slide stay as well.",
        ),
        (
            (
                'codesign buy --on h200,b200 --serve "llama31_70b --rate 30/s --ttft-p99 2s" '
                '--train "llama31_8b --tokens 1T --days 90d"',
                "serve one model and train another",
            ),
            (
                'codesign buy --on b200,gb200 --serve "llama31_8b --rate 50/s" --serve "qwen3_32b --rate 5/s" '
                "--horizon 3y",
                "two services for three years",
            ),
            (
                'codesign buy --on h200,b200 --serve "llama31_70b --rate 30/s" --api in=0.27,out=1.10',
                "with an API as a further product",
            ),
        ),
    ),
    "list": CommandHelp(
        "show what there is to choose from, or what a study can be asked",
        (
            "Without arguments, lists the groups of choices; with a group, its options.",
            "`metrics`, `limits` and `variables` list what a study can be asked and vary,",
            "with unit, value, range and meaning. Words filter, KEY=VALUE sets the study.",
        ),
        (
            ("codesign list", "all groups with their options"),
            ("codesign list accelerator blackwell", "accelerators whose line has a word"),
            ("codesign list accelerator --table", "their numbers side by side"),
            ("codesign list metrics usd workload=continuous", "metrics of serving that are sums of money"),
            ("codesign list limits workload=serving", "limits, with what the design at hand reaches"),
            ("codesign list variables price", "prices that can be set, with unit, value and usual range"),
        ),
    ),
    "evaluate": CommandHelp(
        "price one design, with its full breakdown",
        (
            "Predicts time, throughput, energy, memory and cost of one design, with 90 %",
            "intervals, and shows where the time goes. Searches nothing. A design that",
            "cannot run is refused in one line that says what is missing.",
        ),
        (
            (
                "codesign evaluate accelerator=h200 model=llama31_70b plan.tp=8 plan.pp=4",
                "a plan on catalogue products",
            ),
            (
                "codesign evaluate model=mixtral_8x7b plan.ep=8 --explain",
                "with what each row and column means",
            ),
            (
                "codesign evaluate --from 'vllm serve meta-llama/Llama-3.1-70B -tp 8 --max-num-seqs 64'",
                "the plan of a launch command of an engine or a trainer",
            ),
            (
                "codesign evaluate --from 'trtllm-serve Qwen/Qwen3-8B --tp_size 2' accelerator=h200",
                "the same of any engine",
            ),
            (
                "codesign evaluate model=Qwen/Qwen3-32B workload=continuous",
                "a model of the catalogue by the name that a hub gives it",
            ),
            ("codesign evaluate model=hf model.path=config.json", "a model as model hubs publish it"),
            ("codesign evaluate framework=megatron", "with what a training framework was measured to add"),
            ("codesign evaluate fabric=scin collective=scin_inq", "sums inside the switch, quantised"),
            ("codesign evaluate workload=images accelerator=h100_sxm", "images from a diffusion transformer"),
            ("codesign evaluate accelerator=h200 model=llama31_8b --json", "every number as one flat JSON object"),
        ),
    ),
    "fit": CommandHelp(
        "say what lies in a device's memory when, and what makes a design fit",
        (
            "Bytes by class of data when an engine loads, sizes activations, prefills and",
            "decodes, or in a training step, against device and engine's share; of a",
            "design that does not fit, the fewest fields of the plan to change.",
        ),
        (
            ("codesign fit accelerator=h100_sxm model=llama31_70b workload=continuous plan.tp=2", "a design"),
            (
                "codesign fit --from 'vllm serve openai/gpt-oss-120b --max-num-seqs 64' accelerator=h100_sxm",
                "a launch command",
            ),
            (
                "codesign fit model=gpt3_175b plan.tp=8 plan.pp=4 --picture memory.png",
                "a training step, and its picture",
            ),
        ),
    ),
    "compare": CommandHelp(
        "put the best designs of several choices side by side",
        (
            "Finds the proven best design of every combination of the listed values.",
            "Prints one table and writes one page: cost, energy, latency, capex, and how",
            "often each wins under joint draws of the model's errors.",
        ),
        (
            (
                "codesign compare accelerator=h100_sxm,h200,b200 model=llama31_405b workload=serving_fp8 "
                "objective.limits.tpot_s=50ms",
                "products for serving under a latency limit",
            ),
            (
                "codesign compare accelerator=h200,b200 model=llama31_405b workload=serving_fp8 "
                "sweep=objective.limits.tpot_s:30ms,40ms,60ms",
                "who is best along a limit, a budget or any number",
            ),
            (
                "codesign compare accelerator=h100_sxm,b200 ownership=on_premises,cloud workload=serving",
                "buying (interest, resale, upkeep, staff) against renting by the hour",
            ),
            (
                "codesign compare scale_out=infiniband_ndr,roce_400 model=gpt3_175b",
                "networks; any group or value may be a list",
            ),
            (
                "codesign compare accelerator=h200,b200 model=llama31_70b workload=serving facility=europe "
                "'space.plan.device_count=[16,32]'",
                "at another site, with the number of devices left open",
            ),
            (
                "codesign compare accelerator=h200,b200 model=llama31_70b workload=goodput "
                "--api in=0.27,cached=0.07,out=1.10",
                "one's own fleet against an API's price list",
            ),
        ),
    ),
    "optimize": CommandHelp(
        "find the best plan and hardware, with a proof; leave a run folder and a report",
        (
            "Searches all legal plans and the ranges of hardware that are left open, under",
            "your limits, and says how far from the optimum the answer can be. Leaves a",
            "folder below runs/: the configuration, designs as Parquet, an offline page.",
        ),
        (
            ("codesign optimize", "the default study: 1,024 H100 for GPT-3 175B under two budgets"),
            (
                "codesign optimize accelerator=b200 model=llama31_405b workload=serving_fp8 "
                "objective.limits.tpot_s=50ms",
                "the cheapest way to serve with a catalogue product",
            ),
            ("codesign optimize model=llama31_70b hardware=free", "hardware is designed, not bought: its numbers vary"),
            ("codesign optimize search=pareto", "a front of time against cost, each point with a proof"),
            (
                "codesign optimize search=inverse search.variable=scale_up_bandwidth objective.limits.time_s=4",
                "the least bandwidth that meets a target",
            ),
            (
                "codesign optimize search=certified 'space.plan.offload_optimizer=[0,0.1,0.2,0.5,1]'",
                "the proof alone, over values of your own",
            ),
            ("codesign optimize search=amortised", "an instant answer from a trained network"),
            (
                "codesign optimize search=certified runner=local workers=4",
                "a proof in four processes (or on Ray, Slurm)",
            ),
            ("codesign optimize search=grid runner=local workers=4", "an exhaustive grid in four processes"),
            (
                "codesign optimize -m accelerator=h100_sxm,b200",
                "one search for each listed value; `hydra/launcher=joblib` uses all cores",
            ),
            (
                "codesign optimize experiment=serve_llama31_405b",
                "continuous batching: parallelism, batch and token budget under TTFT and TPOT limits",
            ),
            (
                "codesign optimize experiment=serve_deepseek_v3",
                "experts over 1 to 128 accelerators: 237,692 plans, certified",
            ),
            (
                "codesign optimize experiment=serve_deepseek_v3 search=pareto 'search.minimise=[]' "
                "'search.maximise=[tokens_per_s_per_user,tokens_per_s_per_device]' '~objective.limits.tpot_s'",
                "the serving front: tokens/s per user against tokens/s per accelerator",
            ),
            (
                "codesign optimize experiment=disaggregation",
                "prefill and decode on one pool or two; `mixed_pools` takes other accelerators for prefill",
            ),
            ("codesign optimize experiment=workload_mix", "one hardware for several workloads"),
            ("codesign optimize experiment=chip_175b", "the die: area, clock, HBM stacks, links along its edge"),
            ("codesign optimize experiment=folded_clos", "switches between 8,192 devices: radix, tiers, count"),
            ("codesign optimize experiment=lumorph_rack", "a reconfigurable photonic rack instead of NVLink"),
            ("codesign optimize experiment=busy_node", "a node whose links carry other traffic too"),
            (
                "codesign optimize kernel_correction=learned",
                "kernel times corrected by learned factors; proofs still hold",
            ),
        ),
        OVERRIDE_NOTES,
    ),
    "explore": CommandHelp(
        "open a page with a slider for each number and limit of a study",
        (
            "Starts a server on this machine only, behind a token. Each move of a slider",
            "prices every plan again; a proof runs in the background. The page gives a",
            "link and a command to take along. Ctrl-C ends it.",
        ),
        (
            ("codesign explore model=llama31_70b accelerator=h200 workload=serving", "a study named by overrides"),
            ("codesign explore RUN --open", "the study of a run, shown in the browser"),
        ),
    ),
    "report": CommandHelp(
        "write the report of a run again, or put two runs side by side",
        (
            "Reads a run folder and runs nothing. Writes report.html, one page that needs",
            "no network. With two runs: what was asked differently, what each found, and",
            "the relative change. Prints the command that continues a killed grid.",
        ),
        (
            ("codesign report RUN", "write report.html and the figures of a run"),
            ("codesign report RUN RUN", "two runs on one page"),
        ),
    ),
    "sql": CommandHelp(
        "query the tables of a run in SQL",
        (
            "Runs one SELECT on the designs of a run, on its operations and elasticities,",
            "and on what the chunks of a grid keep. Without a query, lists the tables and",
            "their columns. Shows the first rows; --csv writes all of them.",
        ),
        (
            ("codesign sql RUN", "tables and columns"),
            (
                "codesign sql RUN 'select \"var.tp\", min(time_s) from designs where feasible group by 1'",
                "the best time for each degree of tensor parallelism",
            ),
            (
                "codesign sql RUN 'select first, seconds from chunks order by seconds desc limit 5'",
                "the slowest chunks of a grid",
            ),
            (
                "codesign sql RUN 'select kind, count(*), min(log_goal) from kept group by kind'",
                "what the chunks of a grid keep",
            ),
        ),
    ),
    "verify": CommandHelp(
        "check the proof of a run independently, and attack it; exit code 0 or 1",
        (
            "Derives the bound again by a program that shares nothing with the search,",
            "checks every number in the folder, and tries up to a million designs to beat",
            "the answer. Says what was checked; refuses a folder with a changed file.",
        ),
        (
            ("codesign verify RUN", "check a certified run"),
            ("codesign verify RUN --attack 100000 --json", "with so many attacking designs; numbers as JSON"),
        ),
    ),
    "validate": CommandHelp(
        "score predictions against a folder of measurements",
        (
            "Reads tables of measurements, recognised by their columns, and prints the",
            "error of the model by stratum, with and without the GPU in the fit, and how",
            "many rows lie inside the 90 % intervals.",
        ),
        (
            ("codesign validate --schema", "columns, units and types of every kind of table"),
            ("codesign validate DIR", "errors on a folder of tables"),
            ("codesign validate DIR --commands", "the command that predicts each measured run"),
            ("codesign validate DIR --json", "the same as JSON"),
        ),
    ),
    "observe": CommandHelp(
        "measure a running server, as a table of measured runs",
        (
            "Drives an OpenAI-compatible server (vLLM, SGLang, TensorRT-LLM) in a closed",
            "loop, at a rate or by a trace, and times first tokens, further tokens and whole",
            "requests. Writes the run as `codesign validate` reads it, and each request.",
        ),
        (
            (
                "codesign observe http://HOST:8000 accelerator=h100_sxm model=llama31_8b tp=1 framework=vllm "
                "--clients 32",
                "32 requests at a time",
            ),
            ("codesign observe URL accelerator=h200 tp=8 --rate 5/s --input 2048 --output 512", "Poisson arrivals"),
            ("codesign observe URL accelerator=h200 tp=8 --trace FILE.csv --chat", "recorded arrivals and lengths"),
        ),
    ),
    "import": CommandHelp(
        "turn benchmark results and training logs into tables of measurements",
        (
            "Reads what benchmarks of engines, MLPerf and nccl-tests write, logs of trainers",
            "and tables (CSV, Markdown), adds what you say of machine and layout, and writes",
            "a table that `codesign validate` and `codesign calibrate` read.",
        ),
        (
            ("codesign import result.json gpu=h100 tp=4 --out runs/mine.csv", "a benchmark of a served model"),
            ("codesign import train.log gpu=h100 model=llama31_8b num_gpus=64", "a training log, printed as CSV"),
            ("codesign import all_reduce.txt --out tables/nccl.csv", "what all_reduce_perf of nccl-tests printed"),
        ),
    ),
    "reproduce": CommandHelp(
        "run the experiments that reproduce published results",
        (
            "Prints each published claim with the paper's number, the model's, the error,",
            "the bar and the standing of the claim. Without names, runs every experiment.",
            "Exit code 1 where a bar is missed.",
        ),
        (
            ("codesign reproduce fabrex_rings", "the claims of one experiment"),
            ("codesign reproduce all --json", "all claims as JSON"),
        ),
    ),
    "export": CommandHelp(
        "write the launch command of an engine for a design of a run",
        (
            "Turns a design into the command or manifest of an engine or trainer, beside a",
            "server the benchmark that would measure it. What has no switch there stands in",
            "comments; FILL-IN marks what no run knows.",
        ),
        (
            ("codesign export RUN --to vllm", "print the command for the best design"),
            ("codesign export RUN --to k8s --design 2 --out DIR", "files for the second best"),
        ),
    ),
    "simulate": CommandHelp(
        "serve requests one by one on a design, beside its closed form",
        (
            "Simulates continuous batching request by request, and prints latencies and",
            "throughput beside what the closed form predicts, with a timeline. A closed",
            "loop unless --rate or --trace gives arrivals.",
        ),
        (
            ("codesign simulate RUN", "10,000 requests on the best design of a run"),
            ("codesign simulate RUN --rate 8 --cv 2", "an open loop of 8 requests/s, burstier than Poisson"),
            ("codesign simulate RUN --trace FILE.csv", "recorded arrivals and lengths"),
            ("codesign simulate RUN --replicas 8 --rate 40 --burstiness 3 --router power_of_two", "a fleet"),
            (
                "codesign simulate RUN --replicas 8 --trace FILE.jsonl --router prefix_aware --prefix-cache 200GB",
                "a fleet whose replicas keep prefixes in their hosts' memory",
            ),
        ),
    ),
    "autoscale": CommandHelp(
        "plan replicas by the hour for a day of load",
        (
            "Says how many replicas of a design run in each hour of a load curve under the",
            "latency limits, of each pool where there are two, and what following the load",
            "saves in energy and money against running all of them all day.",
        ),
        (
            ("codesign autoscale RUN --load FILE", "a run of workload=goodput through a day of load"),
            ("codesign autoscale RUN --load FILE --start 2min", "and policies, replicas taking two minutes to start"),
        ),
    ),
    "calibrate": CommandHelp(
        "fit the model's constants to a folder of measurements",
        (
            "Fits constants of kernels, collectives, board power and frameworks, and writes",
            "them as YAML. With --intervals, cross-validates the constants at hand instead",
            "and writes how far predictions may be off.",
        ),
        (
            ("codesign calibrate DIR", "fit and write constants"),
            ("codesign calibrate DIR --intervals", "cross-validate, and write the 90 % intervals"),
            (
                "codesign calibrate DIR --few-shot --out OUT",
                "a few rows of your machine: stay near the constants at hand",
            ),
        ),
    ),
    "train-amortised": CommandHelp(
        "train the networks behind search=amortised and measure their regret",
        (
            "Trains one network for each family of studies, through the model, and measures",
            "on studies that were held out what its answers lose against the optimum. Takes",
            "minutes to hours; without names, trains every family.",
        ),
        (("codesign train-amortised FAMILY --steps 4000", "train one family anew"),),
    ),
    "scaffold": CommandHelp(
        "write a working skeleton of a component of your own",
        (
            "Writes a component that runs as it stands, to be edited: into a plug-in",
            "package, made where there is none, or with --conf as one YAML file in a folder",
            "of your own. Nothing of this package is changed.",
        ),
        (
            ("codesign scaffold fabric NAME", "a fabric, in a plug-in package codesign_NAME"),
            ("codesign scaffold accelerator NAME --conf DIR", "one YAML file; other commands find it with --conf DIR"),
        ),
    ),
    "check-plugin": CommandHelp(
        "check the components of plug-ins against the contracts of their families",
        (
            "Builds each component's example, prices it on small clusters and checks what",
            "its family promises. Prints one line for each promise that is broken. Exit",
            "code 2 where there is one.",
        ),
        (
            ("codesign check-plugin", "all components of installed plug-ins"),
            ("codesign check-plugin SwitchDomain", "one component, by its class"),
        ),
    ),
}
"""Command -> its help."""


def start_text() -> str:
    """Return the commands for a first session, a line each."""
    width = max(len(what) for what, _ in START)
    lines = (f"  {what:{width}}  {command}" for what, command in START)
    return "\n".join(("codesign predicts AI clusters and finds the best designs. To begin:", "", *lines))


def overview_text(description: str) -> str:
    """Commands by what a user wants to do, and where to look next."""
    width = max(map(len, COMMANDS))
    lines = ["usage: codesign COMMAND [OPTION ...] [KEY=VALUE ...]", "", description]
    for title, names in GROUPS.items():
        lines += ["", f"{title}:", *(f"  {name:{width}}  {COMMANDS[name].summary}" for name in names)]
    lines += ["", "options:", f"  {'--help':{width}}  show this; after a command, explain it with examples"]
    lines += [f"  {'--version':{width}}  show the version"]
    return "\n".join(lines) + "\n"


def examples_text(name: str) -> str:
    """The first examples of a command, and its notes."""
    result, lines = COMMANDS[name], ["examples:"]
    for command, what in result.examples[:EXAMPLES_IN_HELP]:
        lines += [f"  {command}", f"      {what}"]
    return "\n".join((*lines, *(["", result.notes] if result.notes else [])))
