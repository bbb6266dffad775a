"""The CNI specification as data: configurations, results and their versions. No plugin is called here."""
