"""A report on what this machine can run, and what to install so that it runs better.

Gathers facts (`examine`) and turns them into lines and tables (`show`) or plain data (`as_json`);
it changes nothing.
"""

from __future__ import annotations

import dataclasses
import platform
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ssr_local import accelerator, default_model, model_files
from ssr_local.accelerator import IdleGPU
from ssr_local.cli_tables import human_size, print_table
from ssr_local.device import Machine, processor_name, this_machine
from ssr_local.footprint import fits, roughly_needed
from ssr_local.llama import backends
from ssr_local.model_files import FileState, Status
from ssr_local.registry import Entry, Registry, models_dir, user_registry_file


@dataclass(frozen=True, slots=True)
class ModelReport:
    entry: Entry
    state: FileState
    fit: str


@dataclass(frozen=True, slots=True)
class Report:
    python: str
    platform: str
    processor: str
    llama_cpp_python: str
    backends: list[str]
    cpu_features: list[str]
    machine: Machine
    idle_gpus: list[IdleGPU]
    models_dir: Path
    user_registry: Path
    models: list[ModelReport]
    recommended: str | None


def examine(registry: Registry) -> Report:
    """Look at everything now. Reads model files in full that were never checked before."""
    machine = this_machine()
    built_with = [backend.name for backend in backends.backends()]
    version = backends.version()
    recommended = default_model.recommend(registry, machine)
    return Report(
        python=f"{platform.python_version()} ({sys.executable})",
        platform=platform.platform(),
        processor=processor_name(),
        llama_cpp_python=version,
        backends=built_with,
        cpu_features=backends.cpu_features(),
        machine=machine,
        idle_gpus=accelerator.idle_gpus(built_with, version),
        models_dir=models_dir(),
        user_registry=user_registry_file(),
        models=[report_on(entry, machine) for entry in registry.entries.values()],
        recommended=recommended.name if recommended else None,
    )


def report_on(entry: Entry, machine: Machine) -> ModelReport:
    state = model_files.file_state(entry)
    needed = roughly_needed(state.size if state.present else entry.size)
    return ModelReport(entry, state, fits(needed, machine, now=False).value)


def as_json(report: Report) -> dict[str, Any]:
    """The same as plain data; sizes in bytes."""
    data = {
        field.name: getattr(report, field.name)
        for field in dataclasses.fields(report)
        if field.name not in ("machine", "models", "idle_gpus", "models_dir", "user_registry")
    }
    return data | {
        "machine": dataclasses.asdict(report.machine),
        "idle_gpus": [dataclasses.asdict(gpu) for gpu in report.idle_gpus],
        "models_dir": str(report.models_dir),
        "user_registry": str(report.user_registry),
        "models": [model_as_json(model) for model in report.models],
    }


def model_as_json(model: ModelReport) -> dict[str, Any]:
    return {
        "name": model.entry.name,
        "status": model.state.status.value,
        "verified": model.state.verified,
        "size": model.state.size if model.state.present else model.entry.size,
        "size_exact": model.state.present or model.entry.size_exact,
        "license": model.entry.license,
        "profile": model.entry.profile.value,
        "context": model.entry.context,
        "fits": model.fit,
        "checked": model.entry.checked.value,
        "path": str(model.entry.path),
        "problem": model.state.problem,
    }


def show(report: Report) -> None:
    """Print the report, and last what the user could do."""
    print_table("System", ("what", "found"), _system_rows(report))
    print_table(
        "Models here",
        ("name", "size", "state", "file"),
        [_present_row(model) for model in report.models if model.state.status is not Status.ABSENT]
        or [("none", "", "", "")],
    )
    print_table(
        "What would fit",
        ("name", "size", "fits"),
        [(m.entry.name, size_of(m), fit_in_words(m)) for m in report.models],
    )
    for line in advice(report):
        print(line)


def advice(report: Report) -> list[str]:
    """What to do about what was found; empty when all is well."""
    lines = [
        f"{gpu.name} is not used: this build of llama.cpp has no backend for it. Install "
        f"{gpu.needs}, then:\n    {gpu.reinstall}"
        for gpu in report.idle_gpus
    ]
    lines += [
        f"{model.entry.name} is damaged. {model.state.problem}"
        for model in report.models
        if model.state.status is Status.DAMAGED
    ]
    reasoning_here = any(m.state.present and m.entry.reasons for m in report.models)
    if report.recommended and not reasoning_here:
        lines.append(
            f"No model that reasons is here. A good one for this machine:\n"
            f"    ssr models pull {report.recommended}"
        )
    return lines


def size_of(model: ModelReport) -> str:
    exact = model.state.present or model.entry.size_exact
    size = model.state.size if model.state.present else model.entry.size
    return human_size(size) if exact else f"~{human_size(size)}"


def fit_in_words(model: ModelReport) -> str:
    return {"gpu": "on the GPU", "memory": "in memory"}.get(model.fit, model.fit)


def state_in_words(state: FileState) -> str:
    if state.status is Status.PARTIAL:
        return f"partial ({human_size(state.size)})"
    if state.present:
        return "present, verified" if state.verified else "present"
    return "" if state.status is Status.ABSENT else state.status.value


def _present_row(model: ModelReport) -> tuple[str, str, str, str]:
    return (
        model.entry.name,
        size_of(model),
        state_in_words(model.state),
        str(model.entry.path),
    )


def _system_rows(report: Report) -> list[tuple[str, str]]:
    machine = report.machine
    rows = [
        ("python", report.python),
        ("system", report.platform),
        ("processor", f"{report.processor}, {machine.cores} cores for this process"),
        (
            "memory",
            f"{human_size(machine.memory.total)}, {human_size(machine.memory.available)} available",
        ),
        ("llama-cpp-python", report.llama_cpp_python),
        ("backends", ", ".join(report.backends) or "unknown"),
        ("CPU features", " ".join(report.cpu_features)),
        ("models folder", str(report.models_dir)),
        ("own registry file", _own_registry(report.user_registry)),
    ]
    gpus = [
        (
            f"gpu {gpu.name}",
            f"{gpu.description}, {human_size(gpu.memory_total)}, "
            f"{human_size(gpu.memory_free)} free",
        )
        for gpu in machine.gpus
    ]
    return rows + (gpus or [("gpu", "none that this build can use")])


def _own_registry(path: Path) -> str:
    return str(path) if path.is_file() else f"{path} (none)"
