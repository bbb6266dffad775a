"""Incidents: a lab in which something is wrong that nobody tells, its ticket, and how an answer is graded."""
