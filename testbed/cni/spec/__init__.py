"""What the CNI specification says, as data: configurations, results and their versions. No plugin is called here."""
