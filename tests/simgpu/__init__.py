"""A simulated GPU that TensorFlow takes for a real device, and the NVML library that goes with it."""
