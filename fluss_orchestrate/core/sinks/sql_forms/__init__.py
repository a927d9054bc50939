"""How a SQL sink writes plans in each of its forms, and reads them back."""
