//! An emulated disk: the model's timing in real time.
