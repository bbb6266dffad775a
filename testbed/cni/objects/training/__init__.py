"""Training jobs: PyTorchJob, TFJob and MPIJob, as the operators of KubeDL and Kubeflow have them."""
