"""The papers' experiments: tables, figures and reports, one folder a paper."""
