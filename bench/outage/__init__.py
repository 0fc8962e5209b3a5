"""What connections meet while a guard hangs or is restarted."""
