"""Options and choices that an engine's own parsers accept, read from its unpacked packages without importing them.

    pip download --no-deps --only-binary=:all: vllm==0.33.0 && unzip vllm-*.whl -d unpacked
    python benchmarks/engine_options.py vllm 0.33.0 unpacked codesign/commands/engine_options/vllm.csv \\
        --earlier 0.15.1=unpacked-0.15.1 0.6.6=unpacked-0.6.6

One row an option: the last version that has it, option, choices (divided by |, empty where any value goes), file:line
where it stands, how many words it takes (0 a flag, ? none or one, 1, + any number) and its effect on a prediction:
`priced`, `none` or `not modelled`. The effect is written by hand, and kept for options that the file already has.
`codesign export` writes nothing that the newest parser does not take; `codesign evaluate --from` knows every row.
"""

import argparse
import ast
import csv
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FILES = {
    "vllm": (
        *("vllm/engine/arg_utils.py", "vllm/config/*.py", "vllm/model_executor/layers/quantization/__init__.py"),
        "vllm/distributed/kv_transfer/kv_connector/factory.py",
        *("vllm/entrypoints/openai/cli_args.py", "vllm/entrypoints/*/cli_args.py", "vllm/entrypoints/cli/serve.py"),
        *("vllm/scripts.py", "vllm_omni/entrypoints/cli/serve.py", "vllm_omni/engine/arg_utils.py"),
    ),
    "vllm_bench": ("vllm/benchmarks/serve.py", "vllm/benchmarks/datasets.py", "vllm/benchmarks/datasets/datasets.py"),
    "sglang": ("sglang/srt/server_args.py", "sglang/srt/arg_groups/fields/*.py", "sglang/srt/arg_groups/choices.py"),
    "megatron": (
        *("megatron/training/arguments.py", "megatron/training/config/*.py"),
        *("megatron/core/transformer/transformer_config.py", "megatron/core/model_parallel_config.py"),
    ),
    "torchtitan": (
        *("torchtitan/config/configs.py", "torchtitan/config/job_config.py"),
        "torchtitan/distributed/activation_checkpoint.py",
        "torchtitan/models/*/config_registry.py",
    ),
    "maxtext": ("maxtext/configs/types.py",),
}

SECTIONS = {"TrainingConfig": "training", "ParallelismConfig": "parallelism", "CompileConfig": "compile"}
TRANSFER = "--kv-transfer-config"  # of vLLM: JSON, or one key after a dot
POLICY = "activation-checkpoint"  # of torchtitan: a subcommand, one a class of policies
FACTORY = "ArgumentGroupFactory"  # of Megatron: one option a field of a dataclass
FRONTEND = "FrontendArgs"  # ends the names of classes of vLLM's server: one option a field
FLAGS = ("store_true", "store_false", "store_const", "count", "help", "argparse.BooleanOptionalAction")
COLUMNS = ("version", "option", "choices", "at", "takes", "effect")

Row = tuple[str, str, str, str]


@dataclass
class Sources:
    """What was parsed: trees by file, classes by name, lists and literal types by name."""

    trees: dict[str, ast.Module] = field(default_factory=dict)
    classes: dict[str, tuple[str, ast.ClassDef]] = field(default_factory=dict)
    named: dict[str, ast.expr] = field(default_factory=dict)


def read(root: Path, patterns: tuple[str, ...]) -> Sources:
    """All files of a target."""
    result = Sources()
    for path in sorted(path for pattern in patterns for path in root.glob(pattern)):
        name = path.relative_to(root).as_posix()
        result.trees[name] = ast.parse(path.read_text(encoding="utf-8"))
        for node in result.trees[name].body:
            if isinstance(node, ast.ClassDef):
                result.classes[node.name] = (name, node)
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                result.named[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
                result.named.setdefault(node.target.id, node.value)
    return result


def choices(node: ast.expr | None, sources: Sources) -> list[str]:
    """Strings and numbers of a list, of a Literal, or of what a name stands for."""
    if isinstance(node, ast.Name):
        return choices(sources.named.get(node.id), sources)
    if isinstance(node, ast.List | ast.Tuple | ast.Set):
        return [text for item in node.elts for text in choices(item, sources)]
    if isinstance(node, ast.Constant):
        return [] if node.value is None or isinstance(node.value, bool) else [str(node.value)]
    if isinstance(node, ast.Subscript):
        kind = ast.unparse(node.value).rpartition(".")[2]
        return choices(node.slice, sources) if kind in ("Literal", "Optional") else []
    if isinstance(node, ast.BinOp):
        return choices(node.left, sources) + choices(node.right, sources)
    if isinstance(node, ast.Call) and node.args:  # list(get_args(X))
        return choices(node.args[0], sources)
    return []


def takes(annotation: ast.expr | None, keywords: Iterable[ast.keyword] = ()) -> str:
    """How many words follow an option: as its `add_argument` says, else by the type of its field."""
    keys = {key.arg: key.value for key in keywords}
    action = keys.get("action")
    if action is not None and (action.value if isinstance(action, ast.Constant) else ast.unparse(action)) in FLAGS:
        return "0"
    if "nargs" in keys:
        count = getattr(keys["nargs"], "value", "+")
        return "?" if count == "?" else "+"
    words = {ast.unparse(node) for node in ast.walk(annotation)} if annotation is not None else set[str]()
    if "bool" in words:
        return "?" if "str" in words else "0"
    return "+" if words & {"list", "List", "tuple", "set", "Sequence"} and "dict" not in words else "1"


def of_type(annotation: ast.expr, sources: Sources) -> list[str]:
    """Choices of a field by its type; a type that is no literal allows any value."""
    if isinstance(annotation, ast.Subscript | ast.BinOp | ast.Name):
        return choices(annotation, sources)
    return []


def fields(of: ast.ClassDef) -> Iterator[tuple[str, ast.AnnAssign]]:
    """Annotated names of a class."""
    for node in of.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


def calls(sources: Sources, name: str) -> Iterator[tuple[str, ast.Call]]:
    """Calls of a function or method of this name."""
    for path, tree in sources.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name:
                yield path, node


def added(sources: Sources) -> Iterator[Row]:
    """Every `add_argument` with its options; what is unpacked from a dataclass's fields is looked up there."""
    origin = {}
    for tree in sources.trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("get_kwargs("):
                origin[ast.unparse(node.targets[0])] = ast.unparse(node.value)[len("get_kwargs(") : -1]
    for path, call in calls(sources, "add_argument"):
        result = [text for key in call.keywords if key.arg == "choices" for text in choices(key.value, sources)]
        typed: ast.expr | None = None
        for part in (part for key in call.keywords if key.arg is None for part in ast.walk(key.value)):
            if isinstance(part, ast.Subscript) and ast.unparse(part.value) in origin:
                wanted, name = origin[ast.unparse(part.value)], ast.literal_eval(part.slice)
                of = fields(sources.classes[wanted][1]) if wanted in sources.classes else ()
                typed = next((node.annotation for one, node in of if one == name), typed)
        result += of_type(typed, sources) if typed is not None else []
        for option in call.args:
            if isinstance(option, ast.Constant) and str(option.value).startswith("-"):
                words = takes(typed, call.keywords)
                yield str(option.value), "|".join(result), f"{path}:{call.lineno}", words
    for path, of in sources.classes.values():
        for name, node in fields(of) if of.name.endswith(FRONTEND) else ():
            option = "--" + name.replace("_", "-")
            kinds = "|".join(of_type(node.annotation, sources))
            yield option, kinds, f"{path}:{node.lineno}", takes(node.annotation)


def annotated(sources: Sources) -> Iterator[Row]:
    """SGLang: fields typed `A[type, help or Arg(...)]`."""
    for path, tree in sources.trees.items():
        for of in (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)):
            for name, node in fields(of):
                said = node.annotation
                if not (isinstance(said, ast.Subscript) and ast.unparse(said.value) == "A"):
                    continue
                if not isinstance(said.slice, ast.Tuple):
                    continue
                kind, *more = said.slice.elts
                keys = {key.arg: key.value for one in more if isinstance(one, ast.Call) for key in one.keywords}
                if "no_cli" in keys or any(ast.unparse(one).startswith("Derived") for one in more):
                    continue
                named = ast.literal_eval(keys["cli_name"]) if "cli_name" in keys else "--" + name.replace("_", "-")
                also = ast.literal_eval(keys["aliases"]) if "aliases" in keys else []
                result = choices(keys["choices"], sources) if "choices" in keys else of_type(kind, sources)
                for option in (named, *also):
                    yield option, "|".join(result), f"{path}:{node.lineno}", takes(kind)


def generated(sources: Sources) -> Iterator[Row]:
    """Megatron: `ArgumentGroupFactory(Class, exclude=...)` makes an option of each field and of those it inherits."""
    for _, call in calls(sources, FACTORY):
        left_out = {text for key in call.keywords if key.arg == "exclude" for text in choices(key.value, sources)}
        if any(key.arg == "exclude" and isinstance(key.value, ast.Name) for key in call.keywords):
            left_out |= _local_list(sources, "exclude")
        waiting = [ast.unparse(call.args[0])]
        while waiting:
            name = waiting.pop()
            if name not in sources.classes:
                continue
            path, of = sources.classes[name]
            waiting += [ast.unparse(base) for base in of.bases]
            for name, node in fields(of):
                if name not in left_out:
                    yield from _generated(name, node, path, sources)


def _local_list(sources: Sources, name: str) -> set[str]:
    """Strings of a list that a function keeps under this name."""
    every = (node for tree in sources.trees.values() for node in ast.walk(tree) if isinstance(node, ast.Assign))
    return {text for node in every if ast.unparse(node.targets[0]) == name for text in choices(node.value, sources)}


def _generated(name: str, node: ast.AnnAssign, path: str, sources: Sources) -> Iterator[Row]:
    """What the field's metadata says goes first; a boolean that is true by default is one that can be taken away."""
    keys = {key.arg: key.value for key in node.value.keywords} if isinstance(node.value, ast.Call) else {}
    said = _argparse_meta(keys.get("metadata"))
    default = keys.get("default", node.value)
    on = isinstance(default, ast.Constant) and default.value is True
    option = name.replace("_", "-")
    names = [f"--no-{option}", f"--disable-{option}"] if on else [f"--{option}"]
    names = choices(said["arg_names"], sources) if "arg_names" in said else names
    result = choices(said["choices"], sources) if "choices" in said else of_type(node.annotation, sources)
    for text in names:
        yield text, "|".join(result), f"{path}:{node.lineno}", takes(node.annotation, [])


def _argparse_meta(metadata: ast.expr | None) -> dict[str, ast.expr]:
    """Keys of `metadata={"argparse_meta": {...}}`."""
    if not isinstance(metadata, ast.Dict):
        return {}
    for key, value in zip(metadata.keys, metadata.values, strict=True):
        if isinstance(key, ast.Constant) and key.value == "argparse_meta" and isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            return {str(one.value): two for one, two in pairs if isinstance(one, ast.Constant)}
    return {}


def dotted(sources: Sources) -> Iterator[Row]:
    """torchtitan: `--section.field`, for a boolean also its negation; a policy of recomputation is a subcommand."""
    job = sources.classes.get("JobConfig")  # before 0.3: one class that has a field for each section
    sections = {ast.unparse(node.annotation): name for name, node in fields(job[1])} if job else SECTIONS
    for name, section in sections.items():
        path, of = sources.classes[name]
        for one, node in fields(of):
            where = f"{path}:{node.lineno}"
            yield f"--{section}.{one}", "|".join(of_type(node.annotation, sources)), where, takes(node.annotation)
            if ast.unparse(node.annotation) == "bool":
                yield f"--{section}.no-{one.replace('_', '-')}", "", where, "0"
    if job:
        return
    recipes = [path for path in sources.trees if path.endswith("config_registry.py")]
    named = [name for path in recipes for of in sources.trees[path].body for name in _recipe(of)]
    yield "--module", "|".join(Path(path).parent.name for path in recipes), "torchtitan/models", "1"
    yield (
        "--config",
        "|".join(named),
        "torchtitan/models/*/config_registry.py",
        "1",
    )
    policies = sources.named["ActivationCheckpointingConfig"]
    for _, call in calls(sources, "subcommand"):
        if call.lineno >= policies.lineno:
            path = "torchtitan/distributed/activation_checkpoint.py"
            yield f"{POLICY}:{ast.literal_eval(call.args[0])}", "", f"{path}:{call.lineno}", "0"


def _recipe(node: ast.stmt) -> list[str]:
    """The function's name if `--config` may say it."""
    if not isinstance(node, ast.FunctionDef) or node.name.startswith("_") or node.returns is None:
        return []
    return [node.name] if ast.unparse(node.returns) == "Trainer.Config" else []


def transferred(sources: Sources) -> Iterator[Row]:
    """vLLM: keys of `--kv-transfer-config`, and the connectors that are registered."""
    if "KVTransferConfig" not in sources.classes:
        return
    path, of = sources.classes["KVTransferConfig"]
    for name, node in fields(of):
        kinds = "|".join(dict.fromkeys(of_type(node.annotation, sources)))
        yield f"{TRANSFER}.{name}", kinds, f"{path}:{node.lineno}", "1"
    known = [(path, call) for path, call in calls(sources, "register_connector")]
    names = [ast.literal_eval(call.args[0]) for _, call in known]
    if known:
        yield f"{TRANSFER}.kv_connector", "|".join(names), f"{known[0][0]}:{known[0][1].lineno}", "1"


def written(sources: Sources) -> Iterator[Row]:
    """MaxText: `key=value`, a key a field of the classes of its configuration; choices of literals and enumerations."""
    for path, of in sources.classes.values():
        for name, node in fields(of):
            kind = ast.unparse(node.annotation).rpartition(".")[2]
            result = of_type(node.annotation, sources)
            if kind in sources.classes:
                body = sources.classes[kind][1].body
                result = [text for one in body if isinstance(one, ast.Assign) for text in choices(one.value, sources)]
            yield name, "|".join(result), f"{path}:{node.lineno}", "1"


READERS = {
    "vllm": (added, transferred),
    "vllm_bench": (added,),
    "sglang": (added, annotated),
    "megatron": (added, generated),
    "torchtitan": (dotted,),
    "maxtext": (written,),
}


def main() -> int:
    """Write the file of one target."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("target", choices=sorted(FILES))
    options.add_argument("version")
    options.add_argument("unpacked", type=Path)
    options.add_argument("out", type=Path)
    options.add_argument("--earlier", nargs="*", default=[], metavar="VERSION=DIR", help="newer ones first")
    asked = options.parse_args()
    effects = {row["option"]: row.get("effect", "") for row in _rows(asked.out)}
    releases = [(asked.version, asked.unpacked), *(one.split("=", 1) for one in asked.earlier)]
    rows = dict[str, tuple[str, Row]]()
    for version, folder in releases:
        sources = read(Path(folder), FILES[asked.target])
        for row in (row for reader in READERS[asked.target] for row in reader(sources)):
            if rows.get(row[0], (version,))[0] == version:
                rows[row[0]] = version, row
    with asked.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows((rows[one][0], *rows[one][1], effects.get(one, "")) for one in sorted(rows))
    print(f"{len(rows)} options -> {asked.out}")
    return 0


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.is_file():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    sys.exit(main())
