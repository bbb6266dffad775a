"""Metrics of a lab for Prometheus: families.yml names them, alerts.yml has rules for them, dashboard.json shows them in
Grafana."""
