"""Reading, summarising, drawing and reproducing fedhpc results.

`python -m fedhpc.tools TOOL ...` starts a tool, as do the scripts in tools/ and the commands fedhpc-TOOL.
"""
