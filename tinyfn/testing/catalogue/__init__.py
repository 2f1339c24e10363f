"""What random programs are made of: for each kind of line, a function that draws one."""

from tinyfn.testing.catalogue import (
    elementwise,
    movement,
    places,
    reductions,
    rows,
    statements,
    windows,
)
from tinyfn.testing.lines import Maker

CATALOGUE: dict[str, Maker] = {
    "unary": elementwise.unary,
    "binary": elementwise.binary,
    "compare": elementwise.compare,
    "cast": elementwise.cast,
    "movement": movement.movement,
    "arrange": movement.arrange,
    "reduce": reductions.reduce,
    "rows": rows.rows,
    "scan": rows.scan,
    "order": rows.order,
    "contraction": reductions.contraction,
    "window": windows.window,
    "index": statements.index,
    "gather": places.gather,
    "scatter": places.scatter,
    "select": places.select,
    "assign": statements.assign,
    "call": statements.call,
}
"""name -> the function that draws a line of it, or None where there is nothing to draw."""
