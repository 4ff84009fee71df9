"""Maps of the tables of finished runs, for reports: sampled rows by principal components, and what is known of each."""

from embexp.runs.table_maps.maps import of_best

__all__ = ["of_best"]
