"""The typed subset of VirtualMachineInstance and VirtualMachine. No I/O."""
