"""The horizontal axis of a curve: rounds, traffic or time, each summed up to the round."""

import numpy as np

from .style import PlotError

LINKS = {"bytes": (".*", "traffic of all links, up and down [B]"),
         "cloud": ("client_cloud|edge_cloud", "traffic of the cloud, up and down [B]")}
TIMES = {"seconds": ("simulated_seconds", "simulated time [s]"), "wall": ("wall_seconds", "wall time [s]")}
REMEDIES = {"seconds": ": the network model was off; run with --network.client_cloud_mbps=... or another network.* key "
                       "(fedhpc help keys), or plot --against bytes or wall",
            "wall": ": plot --against rounds or bytes"}
AXES = ("rounds", *LINKS, "bits", *TIMES)


def horizontal(run, against):
    """(values [T], axis label) of the horizontal axis; traffic and times are summed over rounds."""
    rounds = run.rounds
    if against == "rounds":
        return rounds.index.to_numpy(dtype=float), "global round"
    if against in LINKS:
        links_of, label = LINKS[against]
        return np.cumsum(carried(run, f"^bytes_(up|down)_({links_of})$")), label
    if against == "bits":
        return 8.0 * np.cumsum(sent_by_client(run)), "sent up by a client [bit]"
    column, label = TIMES[against]
    seconds = rounds[column].to_numpy() if column in rounds else np.full(len(rounds), np.nan)
    if np.isnan(seconds).any():
        missing = "NaN" if np.isnan(seconds).all() else f"NaN in {np.isnan(seconds).sum()} of {len(rounds)} rounds"
        raise PlotError(f"{run.path}: {column} is {missing}{REMEDIES[against]}")
    return np.cumsum(seconds), label


def carried(run, pattern):
    """Bytes of each round [T] over the links of this pattern."""
    booked = run.rounds.filter(regex=pattern)
    links = booked.columns[booked.notna().any()]  # all NaN: a link that this run does not have
    if links.empty:
        raise PlotError(f"{run.path}: no link has carried anything, so that there are no bytes to plot against")
    return booked[links].sum(axis=1).to_numpy()


def sent_by_client(run):
    """Bytes of each round [T] that a client has sent, the mean over all clients."""
    if "data.clients" not in run.config:
        raise PlotError(f"{run.path}: the configuration lacks data.clients, the number of clients to share the bytes")
    sent = carried(run, "^bytes_up_client_(edge|cloud)$") / float(run.config["data.clients"])
    if run.config.get("algorithm.neighbours") == "0":  # what is told for a graph without edges need not be
        return sent
    return sent + run.rounds.get("graph_bytes", 0.0 * sent)


def unit_prefix(largest, label):
    """(divisor, label) so that the numbers of an axis in B, bit or s stay short."""
    steps = ([(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")] if "[B]" in label else
             [(1e9, "Gbit"), (1e6, "Mbit"), (1e3, "kbit")] if "[bit]" in label else
             [(3600.0, "h"), (60.0, "min")] if "[s]" in label else [])
    for divisor, unit in steps:
        if largest >= 2 * divisor:
            return divisor, label[: label.rindex("[")] + f"[{unit}]"
    return 1.0, label
