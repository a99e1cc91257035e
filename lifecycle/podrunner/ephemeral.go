package podrunner

import "fmt"

// targetID returns the ID of the target of the ephemeral container with the
// given name. The two containers share the target's process namespace. targetID
// returns "" if the ephemeral container has no target, or if no ephemeral
// container has the given name.
func (t *podSync) targetID(name string) (string, error) {
	for i := range t.pod.Spec.EphemeralContainers {
		c := &t.pod.Spec.EphemeralContainers[i]
		if c.Name != name || c.TargetContainerName == "" {
			continue
		}
		target := t.status.Active(c.TargetContainerName)
		if target == nil || !running(target) {
			return "", fmt.Errorf("unable to find target container %v", c.TargetContainerName)
		}
		return target.GetId(), nil
	}
	return "", nil
}
