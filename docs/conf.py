"""The documentation as a site: `make docs` builds it into docs/_site, without a network, and fails on any warning."""

import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from reference import write_reference  # noqa: E402

from fedpns_ray import __version__  # noqa: E402

project, author, release = "FedPNS-Ray", "the FedPNS-Ray authors", __version__
extensions = ["myst_parser"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
smartquotes = False  # --submit is no dash
highlight_language = "none"  # of a block that names no language
html_theme = "furo"
html_title = "FedPNS-Ray"
html_show_sourcelink = False
html_show_copyright = False
exclude_patterns = ["_site"]
suppress_warnings = ["myst.header"]  # a section may begin with a smaller heading
CLUSTER = HERE.parent / "cluster" / "README.md"
OUTSIDE = r"(\.\./)+cluster/README\.md"

write_reference(HERE / "reference")
(HERE / "reference" / "cluster.md").write_text(
    re.sub(r"\]\((?!#|https?:|\.\.)", "](../../cluster/", CLUSTER.read_text()).replace("](../docs/", "](/")
)


def setup(app):
    """Links to cluster/README.md, which lies outside, lead to its copy."""
    app.connect(
        "source-read", lambda app, name, source: source.append(re.sub(OUTSIDE, "/reference/cluster.md", source.pop()))
    )
