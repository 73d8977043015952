"""What is known of torch and the libraries around it: tables and patterns."""
