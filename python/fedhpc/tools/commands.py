"""The console commands of an installed package: fedhpc-plot, fedhpc-summarize, ..."""

from functools import partial

from .start import start

plot = partial(start, "plot")
summarize = partial(start, "summarize")
watch = partial(start, "watch")
compare = partial(start, "compare")
export = partial(start, "export")
sweep = partial(start, "sweep")
submit = partial(start, "submit")
fetch_data = partial(start, "fetch_data")
