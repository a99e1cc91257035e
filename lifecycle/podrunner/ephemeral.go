package podrunner

import (
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// aim lets the ephemeral container of that name share the processes of the
// container that it targets, if it has a target.
func (t *turn) aim(name string, config *runtimeapi.ContainerConfig) error {
	for i := range t.pod.Spec.EphemeralContainers {
		c := &t.pod.Spec.EphemeralContainers[i]
		if c.Name != name || c.TargetContainerName == "" {
			continue
		}
		target := t.status.Active(c.TargetContainerName)
		if target == nil || !running(target) {
			return fmt.Errorf("unable to find target container %v", c.TargetContainerName)
		}
		options := config.GetLinux().GetSecurityContext().GetNamespaceOptions()
		if options == nil {
			return fmt.Errorf("container %s has no namespaces to share", name)
		}
		options.Pid, options.TargetId = runtimeapi.NamespaceMode_TARGET, target.GetId()
	}
	return nil
}
