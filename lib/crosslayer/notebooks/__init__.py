"""Functions for notebooks, so that a notebook contains only imports, parameters and calls.

`open_campaign` (as `crosslayer.open`) opens a dataset with its tables, figures and claims. `start` is the first call in
`run_all.ipynb`, which measures campaigns and runs the other notebooks. `server_cost` is the content of
`server_cost.ipynb`. Relative paths start at the checkout, wherever Jupyter or papermill was started.
"""

from crosslayer.notebooks.campaign_view import CampaignView, open_campaign
from crosslayer.notebooks.errors import NotebookError
from crosslayer.notebooks.run import Run, start
from crosslayer.notebooks.server_cost import server_cost

__all__ = ["CampaignView", "NotebookError", "Run", "open_campaign", "server_cost", "start"]
