"""Sphinx's settings for tools/docs.sh: Markdown as GitHub reads it, formulas as MathML, nothing from the network."""

import re
from pathlib import Path

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.util import logging

project = "fedhpc"
release = version = (Path(__file__).resolve().parents[2] / "VERSION").read_text().strip()
author = "the fedhpc authors"
extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
root_doc = "README"
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 6
myst_fence_as_directive = ["math"]
# Pages begin with what they are of; a heading may skip a level.
suppress_warnings = ["myst.header"]
html_theme = "alabaster"
html_theme_options = {"page_width": "1100px", "sidebar_width": "240px", "font_family": "sans-serif",
                      "description": "personalized and communication-compressed federated learning"}
html_sidebars = {"**": ["about.html", "searchfield.html", "localtoc.html"]}
html_show_sphinx = html_show_copyright = html_copy_source = False
html_math_renderer = "mathml"
highlight_language = "none"


def formula(self, node, display):
    """MathML, which browsers draw without a script."""
    text = re.sub(r"\\tag\{([^}]*)\}", r"\\qquad \\text{(\1)}", node.astext())
    text = re.sub(r"\\(arg)(?![a-z])", r"\\operatorname{\1}", text)
    text = re.sub(r"(\\(?:begin|end)\{)(?:aligned|gathered)\}", r"\1split}", text)
    if re.search(r"(?<!\\)&|\\\\", text) and r"\begin" not in text:
        text = rf"\begin{{split}} {text} \end{{split}}"
    mathml = convert(text, display=display)
    unknown = re.search(r"\\[a-zA-Z]+|(?<=>)&(?=<)", mathml)
    if unknown:  # the translator leaves what it does not know as it stands
        logging.getLogger(__name__).warning("formula with %s: %s", unknown[0], text, location=node)
    self.body.append(mathml)
    raise nodes.SkipNode


def add_tree(app, name, source):
    """Every page belongs to the first one's tree; what links to what stands in the pages."""
    if name == root_doc:
        pages = sorted(set(app.env.found_docs) - {root_doc})
        source[0] += "\n\n```{toctree}\n:hidden:\n\n" + "\n".join(pages) + "\n```\n"


def setup(app):
    app.connect("source-read", add_tree)
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: [root_doc] if added or removed else [])
    app.add_html_math_renderer("mathml",
                               inline_renderers=(lambda self, node: formula(self, node, "inline"), None),
                               block_renderers=(lambda self, node: formula(self, node, "block"), None))
