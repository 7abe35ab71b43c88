"""Feeds the launch configurations of the planner to the frameworks' own parsers.

    python tests/oracle/launch.py [name …]

Each golden request is planned, each text is parsed as its framework would parse it, and accepted texts are written to
tests/golden/launch, with which CI compares the planner. Run by hand where the packages below are installed; heavy
imports that no parser needs may be missing. A framework that is not installed is named and its texts are not written.
"""

import contextlib
import importlib.metadata
import io
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import types
from pathlib import Path

# What the texts are written for (see the sources in core/src/launch).
PINNED = {
    "accelerate": "1.15.0",
    "trl": "1.14.2",
    "axolotl": "0.19.0",
    "llamafactory": "0.9.5",
    "torchtune": "0.6.1",
    "torchtitan": "0.3.0",
}

ROOT = Path(__file__).resolve().parents[2]
REQUESTS = ROOT / "tests/golden/requests"
ACCEPTED = ROOT / "tests/golden/launch"
BINARY = os.environ.get("VRAMPLAN_BIN", str(ROOT / "build/dev/core/cli/vramplan"))

# What a visitor would fill in.
FILLED = {
    "LORA_ALPHA": "32",
    "LEARNING_RATE": "0.0001",
    "momentum=MOMENTUM": "momentum=0.9",
    "MOMENTUM": "0.9",
    "NORM_EPSILON": "1e-5",
    "ROTARY_BASE": "500000",
    "TRAIN_ITERATIONS": "100",
}
# And what Slurm does.
NODE = {"$SLURM_NODEID": "0", "$MAIN_NODE": "localhost", "$SLURM_JOB_ID": "1"}

os.environ.update(
    DISABLE_VERSION_CHECK="1", HF_HUB_OFFLINE="1", ACCELERATE_USE_CPU="true", AXOLOTL_DO_NOT_TRACK="1", WANDB_DISABLED="1"
)


class Absent(types.ModuleType):
    """A package that a framework imports and its parser does not need."""

    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: args[0] if args and callable(args[0]) else (lambda function: function)


class AbsentFinder:
    NAMES = {"numba", "posthog", "colorama", "addict", "evaluate", "s3fs", "gcsfs", "adlfs", "ocifs", "scipy", "optimum", "schedulefree", "gradio"}

    def find_spec(self, name, path=None, target=None):
        import importlib.machinery

        known = name.split(".")[0] in self.NAMES
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if known else None

    def create_module(self, spec):
        return Absent(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(AbsentFinder())


def fill(text):
    for name, value in FILLED.items():
        text = re.sub(rf"\b{re.escape(name)}\b", value, text)
    return text


def plan(request):
    done = subprocess.run([BINARY, "plan"], input=request, capture_output=True, text=True)
    return json.loads(done.stdout)


@contextlib.contextmanager
def folder(texts):
    """The files of one framework, in a folder of their own."""
    here = os.getcwd()
    with tempfile.TemporaryDirectory() as path:
        for text in texts:
            Path(path, text["filename"]).write_text(fill(text["text"]))
        os.chdir(path)
        try:
            yield Path(path)
        finally:
            os.chdir(here)


def words_of(script):
    """The arguments of the last command of a script."""
    command = script.replace("\\\n", " ").strip().splitlines()[-1]
    if command.startswith("srun bash -c '"):
        command = command.removeprefix("srun bash -c '").removesuffix("'")
    for name, value in NODE.items():
        command = command.replace(name, value)
    return shlex.split(command)


def check_accelerate(path):
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import launch_command_parser

    if (path / "accelerate.yaml").exists():
        config = load_config_from_file(str(path / "accelerate.yaml"))
        known = {option for action in launch_command_parser()._actions for option in action.option_strings}
        for key in config.fsdp_config:
            assert f"--{key}" in known, key
        for key in config.deepspeed_config:
            assert f"--{key}" in known, key
    return launch_command_parser


def check_deepspeed(path):
    """What Transformers reads of it; DeepSpeed's own parser where it is installed."""
    if not (path / "deepspeed.json").exists():
        return
    from transformers.integrations.deepspeed import HfDeepSpeedConfig

    config = HfDeepSpeedConfig(str(path / "deepspeed.json"))
    with contextlib.suppress(ImportError):
        from deepspeed.runtime.config import DeepSpeedConfig  # noqa: F401
        from deepspeed.runtime.zero.config import DeepSpeedZeroConfig

        zero = {key: value for key, value in config.config["zero_optimization"].items() if value != "auto"}
        DeepSpeedZeroConfig(**zero)


def split_launch(words, parser):
    """What `accelerate launch` leaves to the script."""
    start = words.index("launch") + 1
    args = parser().parse_args(["--cpu", *words[start:]])
    return args.training_script, args.training_script_args


def without_hardware():
    """Transformers' checks of the card, which is not there."""
    import transformers.training_args as module

    module.is_torch_bf16_gpu_available = lambda: True
    module.TrainingArguments._validate_args = getattr(module.TrainingArguments, "_validate_args", lambda self: None)


def check_trl(path, script):
    import importlib

    parser = check_accelerate(path)
    check_deepspeed(path)
    name, rest = split_launch(words_of(script), parser)
    module = importlib.import_module(name)
    # The optimizer and the type are checked when the Trainer is made; the card is asked for when they are read.
    made = module.make_parser().parse_args_and_config(args=[*rest, "--use_cpu", "true"], fail_with_unknown_args=True)
    training, model = made[1], made[2]
    from trl import get_peft_config, get_quantization_config

    get_peft_config(model)
    get_quantization_config(model)
    from transformers.trainer_optimizer import _OPTIMIZER_HANDLERS as handlers

    assert training.optim in handlers, training.optim


def check_axolotl(path, script):
    import yaml
    from axolotl.utils.dict import DictDefault

    check_deepspeed(path)
    words = words_of(script)
    assert words[-2:] == ["axolotl.cli.train", "axolotl.yaml"], words
    from axolotl.utils.config import validate_config
    from axolotl.cli.config import prepare_plugins

    given = DictDefault(yaml.safe_load((path / "axolotl.yaml").read_text()))
    if given.plugins:
        prepare_plugins(given)
    world = {"bf16": True, "fp8": False, "tf32": True, "n_gpu": 8, "n_node": 1, "compute_capability": "sm_90"}
    cfg = validate_config(given, capabilities=world, env_capabilities={"torch_version": "2.9.0"})
    for key, value in given.items():
        if value is not None and not isinstance(value, (dict, list)):
            assert cfg.get(key) == value or str(cfg.get(key)) == str(value), (key, value, cfg.get(key))


def check_llamafactory(path, script):
    import yaml
    from transformers import HfArgumentParser
    from llamafactory.hparams.data_args import DataArguments
    from llamafactory.hparams.finetuning_args import FinetuningArguments
    from llamafactory.hparams.model_args import ModelArguments
    from llamafactory.hparams.training_args import TrainingArguments

    check_accelerate(path)
    check_deepspeed(path)
    words = words_of(script)
    assert words[-2:] == ["llamafactory.launcher", "llamafactory.yaml"], words
    given = yaml.safe_load((path / "llamafactory.yaml").read_text())
    given.setdefault("output_dir", "saves")
    given["use_cpu"] = True
    given.pop("deepspeed", None)  # read when there are processes
    parser = HfArgumentParser([ModelArguments, DataArguments, TrainingArguments, FinetuningArguments])
    model, _, training, finetuning = parser.parse_dict(given)
    from llamafactory.hparams.parser import _verify_model_args

    _verify_model_args(model, None, finetuning)


def check_torchtune(path, script):
    from omegaconf import OmegaConf
    from torchtune._recipe_registry import get_all_recipes
    from torchtune.config._utils import _get_component_from_path, _has_component
    from torchtune.config._validate import validate

    words = words_of(script)
    recipe = next(r for r in get_all_recipes() if r.name in words)
    assert words[-2:] == ["--config", "torchtune.yaml"], words
    text = (path / "torchtune.yaml").read_text()
    config = OmegaConf.create(text)
    validate(config)
    for part in config.values():
        if _has_component(part):
            _get_component_from_path(part["_component_"])
    source = Path(sys.modules["torchtune"].__file__).parents[1] / "recipes" / f"{recipe.name}.py"
    wanted = set(re.findall(r"\bcfg\.(\w+)", source.read_text())) - {"get", "profiler"}
    missing = wanted - set(config)
    allowed = {"lr_scheduler", "checkpointer", "tokenizer", "profiler", "log_level", "log_dir"}
    assert missing <= allowed, missing


def check_torchtitan(path, script):
    from torchtitan.config import ConfigManager

    words = words_of(script)
    ConfigManager().parse_args(words[words.index("torchtitan.train") + 1 :])


def check_megatron(path, script):
    import argparse
    import typing

    typing.override = getattr(typing, "override", lambda function: function)
    from megatron.training.arguments import add_megatron_arguments

    words = words_of(script)
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_megatron_arguments(parser)
    parser.parse_args([word for word in words[words.index("pretrain_gpt.py") + 1 :]])


CHECKS = {
    "trl": check_trl,
    "axolotl": check_axolotl,
    "llamafactory": check_llamafactory,
    "torchtune": check_torchtune,
    "torchtitan": check_torchtitan,
    "megatron": check_megatron,
}


def grouped(texts):
    groups = {}
    for text in texts:
        groups.setdefault(text["id"], []).append(text)
    return groups


def accepted(name, group):
    """Whether the framework takes the texts; says so when it does not."""
    try:
        with folder(group) as path, contextlib.redirect_stdout(io.StringIO()):
            CHECKS[name](path, fill(group[-1]["text"]))
    except Exception as error:  # whatever a parser raises is its verdict
        return f"{type(error).__name__}: {error}"
    except SystemExit as stop:
        return f"exit {stop.code}"
    return None


def golden(texts, left_out):
    parts = [f"=== {t['id']} {t['filename']} ({t['format']})\n{t['text']}" for t in texts]
    parts += [f"=== without {o['id']}: {o['reason']} at {o['pointer']}\n" for o in left_out]
    return "".join(parts)


def main(names):
    for package, version in PINNED.items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found = importlib.metadata.version(package)
            assert found == version, f"{package} {found} is installed, the texts are for {version}"
    without_hardware()
    ACCEPTED.mkdir(exist_ok=True)
    refused = 0
    for request in sorted(REQUESTS.glob("*.json")):
        if names and request.stem not in names:
            continue
        report = plan(request.read_text())
        if report["problems"]:
            continue
        verdicts = {name: accepted(name, group) for name, group in grouped(report["launch"]).items()}
        for name, verdict in verdicts.items():
            if verdict:
                refused += 1
                print(f"{request.stem}: {name} refused: {verdict[:600]}")
        if not any(verdicts.values()):
            (ACCEPTED / f"{request.stem}.txt").write_text(golden(report["launch"], report["launch_left_out"]))
    print(f"{refused} refused")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
