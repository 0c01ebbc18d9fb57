"""The only importers of TensorFlow, Keras, pynvml and psutil: one door for each."""
