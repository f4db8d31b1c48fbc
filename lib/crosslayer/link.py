from crosslayer.testbed.on_link import run_on_link as run_on_link  # alias until merged
