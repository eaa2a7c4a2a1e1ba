"""Reading, summarising, drawing and reproducing fedhpc results; the scripts in tools/ start its modules."""
