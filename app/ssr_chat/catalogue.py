"""Which models the window offers: those whose files are on this machine."""

from __future__ import annotations

from ssr_local.registry import Registry


def present_models() -> list[str]:
    """Names of the registry's models that are here. Whether a file is sound shows at loading."""
    return [entry.name for entry in Registry.load().entries.values() if entry.path.is_file()]
