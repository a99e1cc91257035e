package podspec

import (
	"fmt"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// PortNumber returns the port number for port, a field of a probe or a hook of
// container c. The field is a number, the name of one of c's ports, or a number
// as text. The texts of the errors are the kubelet's.
func PortNumber(port intstr.IntOrString, c *corev1.Container) (int, error) {
	n := int(port.IntVal)
	if port.Type == intstr.String {
		named := slices.IndexFunc(c.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.StrVal })
		if named >= 0 {
			n = int(c.Ports[named].ContainerPort)
		} else {
			var err error
			if n, err = strconv.Atoi(port.StrVal); err != nil {
				return 0, err
			}
		}
	}
	if n < 1 || n > 65535 {
		return 0, fmt.Errorf("invalid port number: %d", n)
	}
	return n, nil
}
