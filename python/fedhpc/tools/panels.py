"""Which series stand together in a panel of a figure."""

import re

import numpy as np

from .style import STYLES, PlotError

NAMES = {"global_loss": "test loss", "train_loss": "training loss", "personal_loss": "personal test loss"}
WHOSE = {"global_accuracy": "of the global model", "personal_accuracy": "of own models, mean over clients",
         "personal_accuracy_weighted": "of own models, over all samples",
         "edge_accuracy": "of edge models, mean over edges",
         "participant_accuracy": "of participants' own models", "best_personal_accuracy": "of own models, best so far",
         "personal_accuracy_std": "of own models, deviation over clients",
         "personal_accuracy_p10": "of own models, tenth percentile"}  # accuracies
ACCURACY = "test accuracy [%]"
# The series of every run (include/fedhpc/engine/metrics.def); all others are an algorithm's own.
OF_EVERY_RUN = {
    "train_loss", "global_accuracy", "global_loss", "global_perplexity", "global_f1", "global_rmse", "edge_accuracy",
    "edge_rmse", "personal_accuracy", "personal_accuracy_weighted", "personal_accuracy_std", "personal_accuracy_p10",
    "personal_loss", "personal_perplexity", "personal_f1", "personal_rmse", "participant_accuracy",
    "best_personal_accuracy", "best_personal_rmse", "validation_global_accuracy", "validation_global_loss",
    "validation_global_f1", "validation_global_rmse", "validation_personal_accuracy", "validation_personal_loss",
    "validation_personal_f1", "validation_personal_rmse",
    "participants", "bytes_up_client_edge", "bytes_down_client_edge", "bytes_up_edge_cloud", "bytes_down_edge_cloud",
    "bytes_up_client_cloud", "bytes_down_client_cloud", "simulated_seconds", "wall_seconds", "seconds_cpu", "seconds_train",
    "seconds_wait", "balance", "bytes_moved", "seconds_aggregate", "seconds_evaluate", "seconds_io"}
QUANTILES = ("_p10", "_p50", "_p90")  # endings of a series of percentiles over clients
DIMENSIONLESS = ("", "1", "fraction")


def evaluated_by_any(runs, metrics):
    """The metrics that at least one run has evaluated."""
    return [metric for metric in metrics if any(len(run.evaluated(metric)) for run in runs)]


def name_of(metric):
    """A series' name in words: `effective_rank.fc1` is effective rank, fc1."""
    return NAMES.get(metric, metric.replace(".", ", ", 1).replace("_", " "))


def axis_name(metrics, shared):
    """`shared` for a panel of several metrics, the metric's own name for a panel of one."""
    return name_of(metrics[0]) if len(metrics) == 1 else shared


def accuracy_axis(metrics):
    """Says whose accuracy a panel shows, where that is one; the legend does where there are several."""
    if len(metrics) != 1:
        return ACCURACY
    metric, = metrics
    return f"test accuracy {WHOSE[metric]} [%]" if metric in WHOSE else f"{name_of(metric)} [%]"


def compared(runs, measure):
    """The series of a measure, accuracy or rmse, that the standard figure shows."""
    names = [f"global_{measure}"]
    for run in runs:
        both = run.rounds.reindex(columns=[f"global_{measure}", f"personal_{measure}"]).dropna()
        personal = run.evaluated(f"personal_{measure}")
        # A point of accuracy; a hundredth of an rmse, whose unit is the data's.
        least = 0.01 * (1 if measure == "accuracy" else both.max(axis=1))
        if len(personal) and (both.empty or (both.diff(axis=1).iloc[:, 1].abs() > least).any()):
            names = [f"global_{measure}", f"personal_{measure}"]
    return evaluated_by_any(runs, [*names, f"edge_{measure}"])


def default_panels(runs):
    """The two panels of the standard figure, accuracy and loss: a list of (vertical label, metrics).

    Accuracy is the global model's, the personal models' where it differs, and the edge models'; where no run has one,
    it is the rmse. Loss is that of the global model, the clients' own where there is none, and of training.
    """
    accuracy = compared(runs, "accuracy") or compared(runs, "rmse")
    loss = evaluated_by_any(runs, ["global_loss", "train_loss"])
    if "global_loss" not in loss:
        loss = evaluated_by_any(runs, ["personal_loss", "train_loss"])
    by_rmse = any(name.endswith("_rmse") for name in accuracy)
    axis = axis_name(accuracy, "test rmse") if by_rmse else accuracy_axis(accuracy)
    return [(axis, accuracy), (axis_name(loss, "loss" if by_rmse else "cross-entropy loss"), loss)]


def unit_of(runs, metric):
    """The unit in the first file that states one, else what the name tells; "" for plain numbers."""
    unit = next((run.units[metric] for run in runs if metric in run.units), "")
    unit = unit or ("B" if metric.startswith("bytes_") else "s" if "seconds" in metric else "")
    return "" if unit in DIMENSIONLESS else "B" if unit == "bytes" else unit


def with_unit(name, unit):
    """An axis' label. Amounts are those of a round, which a horizontal axis of sums would not let one think."""
    return name_of(name) + (" per round" if unit in ("B", "s") else "") + (f" [{unit}]" if unit else "")


def panels_of(metrics, runs):
    """Panels for the metrics asked for: accuracies share one, losses share one, others stand alone."""
    panels = {}
    for metric in metrics:
        if not evaluated_by_any(runs, [metric]):
            raise PlotError(f"{runs[0].path}: metric {metric} was never evaluated; "
                            f"this file has {', '.join(m for m in runs[0].rounds if len(runs[0].evaluated(m)))}")
        label = (ACCURACY if "accuracy" in metric else "loss" if "loss" in metric else
                 with_unit(metric, unit_of(runs, metric)))
        panels.setdefault(label, []).append(metric)
    names = {"loss": lambda members: axis_name(members, "loss"), ACCURACY: accuracy_axis}
    return [(names[label](members) if label in names else label, members) for label, members in panels.items()]


def own_series(runs):
    """The series of the algorithms' own that at least one run has evaluated, in the files' order."""
    names = dict.fromkeys(name for run in runs for name in run.rounds if name not in OF_EVERY_RUN)
    return evaluated_by_any(runs, names)


def own_panels(runs):
    """Panels of the algorithms' own series: (vertical label, metrics), one per family.

    A family are percentiles of one quantity (`angle_p10`, `_p50`, `_p90`), one quantity of several layers
    (`effective_rank.fc1`, ...), or names with a first or last word and the unit in common (`density_personal`,
    `density_edge`; `primal_residual`, `dual_residual`).
    """
    names = own_series(runs)
    if not names:
        raise PlotError(f"{runs[0].path}: the algorithm records no series of its own; leave out --panel own")
    accuracies = [name for name in names if "accuracy" in name]
    families = families_of([name for name in names if name not in accuracies], lambda name: unit_of(runs, name))
    panels = [(accuracy_axis(accuracies), accuracies)] if accuracies else []
    for family, members in families.items():
        if len(runs) > 1 and len(members) > len(STYLES):
            raise PlotError(f"{family}: {len(members)} series of {len(runs)} runs are more curves than dashes can tell "
                            f"apart; plot one run, or a few of them by --metric {','.join(members[:2])}")
        panels.append((with_unit(family, unit_of(runs, members[0])), members))
    return panels


def families_of(names, unit):
    """{family: names}; a name without relatives is a family of its own."""
    families, left = {}, list(names)
    for stem_of in (lambda n: n[:-4] if n.endswith(QUANTILES) else "", lambda n: n.split(".")[0] if "." in n else "",
                    lambda n: re.split(r"[_.\d]", n)[0], lambda n: n.split("_")[-1]):
        together = {}
        for name in left:
            together.setdefault((stem_of(name), unit(name)), []).append(name)
        for (stem, of_unit), members in together.items():
            if stem and len(members) > 1:
                families[stem if stem not in families else f"{stem} in {of_unit or 'plain numbers'}"] = members
                left = [name for name in left if name not in members]
    families.update({name: [name] for name in left})
    return dict(sorted(families.items(), key=lambda item: list(names).index(item[1][0])))


def are_quantiles(metrics):
    """Whether the metrics are the 10th, 50th and 90th percentile of one quantity, in this order."""
    return len(metrics) == len(QUANTILES) and all(m.endswith(q) for m, q in zip(metrics, QUANTILES))


def recorded_rounds(run, metric):
    """Mask [T]: the round has a value of the metric."""
    return run.rounds[metric].notna().to_numpy() if metric in run.rounds else np.zeros(len(run.rounds), dtype=bool)
