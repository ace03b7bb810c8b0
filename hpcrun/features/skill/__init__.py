"""What programs and coding agents need of hpcrun: instructions, and schemas of its documents."""
