# What __init__.py imports when it is first used.
from . import callbacks as callbacks, data as data, errors as errors, methods as methods, models as models
from . import results as results, running as running, testing as testing, tools as tools
from ._script_model import script_model as script_model
from .data import fetch as fetch, from_leaf as from_leaf, write_dataset as write_dataset
from .errors import ConfigError as ConfigError, DataError as DataError, Error as Error, Interrupted as Interrupted
from .methods import (
    Algorithm as Algorithm, Block as Block, CatchUp as CatchUp, Codec as Codec, EdgeRows as EdgeRows,
    Evaluation as Evaluation, EvaluationBlock as EvaluationBlock, FactorMap as FactorMap, Layout as Layout,
    LocalStep as LocalStep, Optimizer as Optimizer, RandomColumns as RandomColumns, Round as Round,
    RowNumbers as RowNumbers, RowPart as RowPart, Rows as Rows, Setup as Setup, State as State,
    StoredRows as StoredRows, UpdateMap as UpdateMap, algorithm as algorithm, codec as codec,
    largest_codec as largest_codec, sign_codec as sign_codec, unless as unless, where as where)
from .models import export_model as export_model, load_weights as load_weights
from .results import Results as Results, load as load
from .running import (
    help as help, list as list, plan as plan, rank as rank, ranks as ranks, resume as resume, run as run,
    version as version)
from .tools.project import configs as configs

__version__: str
