"""Show a conversion as one HTML page: the notebook on the left, the script on the right."""
