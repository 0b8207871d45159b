"""Which model to use when the user names none, and what to tell them about it.

Order: what is here and fits comes first, models that reason before those that don't, larger before
smaller up to what the machine runs at a bearable speed. Nothing large is ever downloaded unasked:
with no fitting model here the embedded one is used, small enough to fetch on the way, and the
message says which model to pull for real work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ssr_local import download, model_files
from ssr_local.device import Machine, this_machine
from ssr_local.footprint import Fit, fits, roughly_needed
from ssr_local.registry import EMBEDDED, Checked, Entry, Registry, ResolvedModel, resolve
from ssr_local.request import Thinking

CPU_COMFORT = 3_000_000_000
"""Bytes of weights read per token that a CPU still turns into a bearable speed: at 20 to 40 GB/s
of memory bandwidth some 7 to 13 tokens/s. Models that read more rank behind those that read less,
unless a GPU holds them."""
CPU_DOWNLOAD = 6_000_000_000
"""Bytes: the largest file that is recommended for a machine without a GPU that holds it."""
_PROFILE_RANK = {Thinking.NATIVE: 2, Thinking.PROMPTED: 1, Thinking.OFF: 0}


@dataclass(frozen=True, slots=True)
class DefaultChoice:
    """`message` is for the user; None when there is nothing to explain."""

    entry: Entry
    present: bool
    message: str | None


def choose_default(
    registry: Registry,
    machine: Machine,
    *,
    is_present: Callable[[Entry], bool] = lambda entry: model_files.file_state(entry).present,
    hub_reachable: Callable[[], bool] = download.hub_reachable,
) -> DefaultChoice:
    """The best model that is here, else the embedded one; downloads nothing."""
    present = [entry for entry in registry.entries.values() if is_present(entry)]
    best = _best(present, machine, now=True)
    if best is not None and best.name != EMBEDDED:
        return DefaultChoice(best, True, f"Using {best.name}; --model takes another.")
    embedded = registry.get(EMBEDDED)
    message = _demo_message(embedded, recommend(registry, machine), hub_reachable())
    return DefaultChoice(embedded, embedded in present, message)


def recommend(registry: Registry, machine: Machine) -> Entry | None:
    """The model to pull for this machine: one that reasons by itself, runs well here, and whose
    file is known to be where the entry says."""
    candidates = [
        entry
        for entry in registry.entries.values()
        if entry.profile is Thinking.NATIVE
        and entry.checked is not Checked.ASSUMED
        and _comfortable(entry, machine, now=False)
        and (_on_gpu(entry, machine, now=False) or entry.size <= CPU_DOWNLOAD)
    ]
    return _best(candidates, machine, now=False)


def prepare(
    name_or_path: str | None,
    *,
    notify: Callable[[str], None],
    on_progress: download.OnProgress,
    registry: Registry | None = None,
) -> ResolvedModel:
    """The checked model file for what the user asked for, or for nothing in particular.

    Args:
        notify: gets the message of `choose_default`, for the user to see.
        on_progress: follows the download of the embedded model, should one be needed.

    Raises:
        ModelNotFound, ModelCorrupt: see `resolve`.
        DownloadFailed: the embedded model is needed and can't be had.
    """
    registry = registry or Registry.load()
    if name_or_path is not None:
        return resolve(name_or_path, registry)
    choice = choose_default(registry, this_machine())
    if choice.message:
        notify(choice.message)
    if not choice.present:
        download.pull(choice.entry, on_progress=on_progress)
    return resolve(choice.entry.name, registry)


def _best(entries: Iterable[Entry], machine: Machine, *, now: bool) -> Entry | None:
    fitting = [e for e in entries if _fit(e, machine, now=now) is not Fit.TOO_LARGE]
    return max(fitting, key=lambda entry: _rank(entry, machine, now=now), default=None)


def _rank(entry: Entry, machine: Machine, *, now: bool) -> tuple[bool, int, float]:
    """Reasoning first; then bearable speed; among the slow the one that reads least is best."""
    comfortable = _comfortable(entry, machine, now=now)
    strength = _strength(entry) if comfortable else -_bytes_per_token(entry)
    return entry.reasons, _PROFILE_RANK[entry.profile] + 3 * comfortable, strength


def _comfortable(entry: Entry, machine: Machine, *, now: bool) -> bool:
    return _on_gpu(entry, machine, now=now) or _bytes_per_token(entry) <= CPU_COMFORT


def _on_gpu(entry: Entry, machine: Machine, *, now: bool) -> bool:
    return _fit(entry, machine, now=now) is Fit.GPU


def _strength(entry: Entry) -> float:
    """The dense size that a sparse model about equals: the geometric mean, a rule of thumb."""
    return math.sqrt(entry.parameters * (entry.active_parameters or entry.parameters))


def _bytes_per_token(entry: Entry) -> float:
    return entry.size * (entry.active_parameters or entry.parameters) / entry.parameters


def _fit(entry: Entry, machine: Machine, *, now: bool) -> Fit:
    return fits(roughly_needed(entry.size), machine, now=now)


def _demo_message(embedded: Entry, better: Entry | None, reachable: bool) -> str:
    about = (
        f"No larger model that fits is here, so this uses {embedded.name}: a tiny demonstration "
        f"model ({embedded.parameters * 1000:.0f} million parameters) that does not reason and is "
        "often wrong."
    )
    if better is None:
        return f"{about} Larger models of the registry don't fit this machine."
    if reachable:
        return (
            f"{about} For real answers: ssr models pull {better.name} ({better.size / 1e9:.1f} GB)."
        )
    return (
        f"{about} The model hub can't be reached from here; when it can, "
        f"`ssr models pull {better.name}` gets a model for this machine, and the path of any GGUF "
        "file works with --model."
    )
