"""The window's look as far as Gradio's theme decides it: fonts that Gradio ships, calm colours.

Everything else, the colours too, is in `static/chat.css`. The login page of `--auth` lacks that
file, so the colours it needs stand here once more, as fallbacks.
"""

from __future__ import annotations

import gradio as gr
from gradio.themes.utils.fonts import Font, LocalFont

# Regular and bold only: Gradio's semi-bold files lack letters.
SANS: list[Font | str] = [
    LocalFont("IBM Plex Sans", weights=(400, 700)),
    "ui-sans-serif",
    "system-ui",
    "sans-serif",
]
MONO: list[Font | str] = [
    LocalFont("IBM Plex Mono", weights=(400, 700)),
    "ui-monospace",
    "monospace",
]


def theme() -> gr.themes.Base:
    """Variables without a `_dark` twin are the same in both."""
    return gr.themes.Base(
        primary_hue=gr.themes.colors.slate,
        neutral_hue=gr.themes.colors.slate,
        radius_size=gr.themes.sizes.radius_md,
        font=SANS,
        font_mono=MONO,
    ).set(
        body_background_fill="var(--page, #faf9f7)",
        body_background_fill_dark="var(--page, #1a1a1c)",
        body_text_color="var(--ink, #23211e)",
        body_text_color_dark="var(--ink, #e9e6e1)",
        block_background_fill="transparent",
        block_background_fill_dark="transparent",
        block_border_width="0px",
        block_border_width_dark="0px",
        block_shadow="none",
        block_label_text_color="var(--soft)",
        block_label_text_color_dark="var(--soft)",
        block_title_text_color="var(--soft)",
        block_title_text_color_dark="var(--soft)",
        input_background_fill="var(--field, #f3f1ed)",
        input_background_fill_dark="var(--field, #2b2b2f)",
        input_border_color="var(--line)",
        input_border_color_dark="var(--line)",
        checkbox_background_color_selected="var(--accent)",
        checkbox_background_color_selected_dark="var(--accent)",
        checkbox_border_color_selected="var(--accent)",
        checkbox_border_color_selected_dark="var(--accent)",
        slider_color="var(--accent)",
        slider_color_dark="var(--accent)",
        border_color_primary="var(--line)",
        border_color_primary_dark="var(--line)",
        background_fill_primary="var(--card)",
        background_fill_primary_dark="var(--card)",
        background_fill_secondary="var(--field, #f3f1ed)",
        background_fill_secondary_dark="var(--field, #2b2b2f)",
    )
