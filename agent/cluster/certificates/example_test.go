package certificates_test

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeparts/kubeparts/agent/cluster/certificates"
)

// A node without a certificate of its cluster serves with a certificate that it has signed itself.
func ExampleSelfSigned() {
	dir, err := os.MkdirTemp("", "pki")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	cert, key, err := certificates.SelfSigned(dir, "node1")
	if err != nil {
		fmt.Println(err)
		return
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	fmt.Println(filepath.Base(cert), filepath.Base(key), err)
	fmt.Println(pair.Leaf.DNSNames)
	// Output:
	// kubelet.crt kubelet.key <nil>
	// [node1]
}
