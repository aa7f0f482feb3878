"""Turn one notebook into the files of a converted folder."""
