"""`ssr-chat`: a window on a local reasoning model that shows its speculation live.

A view on `ssr_local`'s event stream. `reply` turns events into state and `view` turns state into
what the page shows, both pure; `host` owns the one engine of the process; `page` and `static/` are
the window; `cli` starts it.
"""

import os

# Gradio reads this when it is imported: without it, it would phone home.
os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
