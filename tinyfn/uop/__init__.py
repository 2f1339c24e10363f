"""The graph: interned nodes, their meaning, and the engine that rewrites them. Door: `uop.ops`."""
