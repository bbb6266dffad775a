"""The `spec` of training jobs as users write it, for all operators.

Sources: KubeDL (kubedl-io/kubedl), apis/training/v1alpha1 and pkg/job_controller/api/v1; Kubeflow's training operator
1.8, pkg/apis/kubeflow.org/v1; kubeflow/mpi-operator 0.8, pkg/apis/kubeflow/v2beta1.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from testbed.cni.objects.kinds import Free, Metadata, Part, Spec
from testbed.cni.objects.pod_spec import Count, PodTemplate, check_containers

KUBEDL, KUBEFLOW, MPI_OPERATOR = "training.kubedl.io/v1alpha1", "kubeflow.org/v1", "kubeflow.org/v2beta1"
KEYS = {"PyTorchJob": "pytorchReplicaSpecs", "TFJob": "tfReplicaSpecs", "MPIJob": "mpiReplicaSpecs"}
"""The key of the replicas in `spec`, by kind."""
RestartPolicy = Literal["Always", "OnFailure", "Never", "ExitCode"]
Seconds = Annotated[int, Field(ge=0)]


class RunPolicy(Free):
    cleanPodPolicy: Literal["", "All", "Running", "None"] = ""  # noqa: N815 (the operators' names, here and below)
    ttlSecondsAfterFinished: Seconds | None = None  # noqa: N815
    activeDeadlineSeconds: Seconds | None = None  # noqa: N815
    backoffLimit: Count | None = None  # noqa: N815
    suspend: bool = False
    managedBy: Literal["", "kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue"] = ""  # noqa: N815


class Replica(Part):
    replicas: Count | None = None
    restartPolicy: RestartPolicy | None = None  # noqa: N815
    template: PodTemplate
    spotReplicaSpec: dict[str, Any] | None = None  # noqa: N815


class ElasticPolicy(Part):
    minReplicas: Count | None = None  # noqa: N815
    maxReplicas: Count | None = None  # noqa: N815
    rdzvBackend: Literal["c10d", "etcd", "etcd-v2"] = "c10d"  # noqa: N815
    rdzvPort: int | None = None  # noqa: N815
    rdzvHost: str | None = None  # noqa: N815
    rdzvId: str | None = None  # noqa: N815
    rdzvConf: list[dict[str, str]] | None = None  # noqa: N815
    standalone: bool = False
    nProcPerNode: int | None = None  # noqa: N815
    maxRestarts: Count | None = None  # noqa: N815
    metrics: list[Any] | None = None


class TrainingSpec(RunPolicy, Spec):
    """The `spec` of all kinds of all operators."""

    runPolicy: RunPolicy = RunPolicy()  # noqa: N815
    pytorchReplicaSpecs: dict[str, Replica] | None = None  # noqa: N815
    tfReplicaSpecs: dict[str, Replica] | None = None  # noqa: N815
    mpiReplicaSpecs: dict[str, Replica] | None = None  # noqa: N815
    successPolicy: Literal["", "AllWorkers"] = ""  # noqa: N815
    nprocPerNode: str | None = None  # noqa: N815
    elasticPolicy: ElasticPolicy | None = None  # noqa: N815
    enableDynamicWorker: bool = False  # noqa: N815
    slotsPerWorker: Annotated[int, Field(ge=1)] = 1  # noqa: N815
    mainContainer: str = ""  # noqa: N815
    sshAuthMountPath: str = "/root/.ssh"  # noqa: N815
    mpiImplementation: Literal["OpenMPI", "Intel", "MPICH"] = "OpenMPI"  # noqa: N815
    launcherCreationPolicy: Literal["AtStartup", "WaitForWorkersReady"] = "AtStartup"  # noqa: N815
    runLauncherAsWorker: bool = False  # noqa: N815
    mpiDistribution: Literal["OpenMPI", "IntelMPI", "MPICH"] = "OpenMPI"  # noqa: N815

    def check(self, metadata: Metadata) -> None:
        for key in KEYS.values():
            for kind, replica in (getattr(self, key) or {}).items():
                check_containers(replica.template.spec, f"spec.{key}.{kind}.template.spec")
