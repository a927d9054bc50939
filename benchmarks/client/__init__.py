"""The client beside pyfluss and beside a bare socket."""
