"""What a run may reach besides the port, where a manifest grants it; all of it is enforced here, outside."""
