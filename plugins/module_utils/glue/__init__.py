"""The only code in module_utils that imports ansible: module wrapper, spec constants, command runner."""
