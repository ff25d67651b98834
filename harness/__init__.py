"""What tests, chaos and bench share: real servers on free ports, fakes of the outside world, faults."""
