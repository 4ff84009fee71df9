"""The HTML page of a report: one file with everything in it, which loads nothing from the network.

`document.py` puts it together from the files in `assets/`; `content.py` has the data of the runs in it. The maps of
tables come from `embexp.runs.table_maps`.
"""

from embexp.reports.page.document import write_page

__all__ = ["write_page"]
