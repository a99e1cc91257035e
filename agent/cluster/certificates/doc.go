// Package certificates gets and rotates the certificates of a node, as the kubelet does. The files
// have the same names as those of the kubelet.
//
// # What it does
//
// [Connect] returns a [Client], which has the configuration for clients of the API server. If the
// kubeconfig can't be used, for example because its certificate has expired, Connect requests a
// client certificate with the credentials of a bootstrap kubeconfig. It then writes the kubeconfig.
// [Client.Run] replaces the certificate before it expires.
//
// A [Server] requests the serving certificate of the node's API and replaces it. [SelfSigned]
// creates a serving certificate without the API server.
//
// # What you supply
//
// You supply the paths, the name of the node, and for a Server the addresses of the node:
//
//	client, err := certificates.Connect(ctx, certificates.ClientConfig{
//		Kubeconfig: "/etc/kubernetes/kubelet.conf", Bootstrap: "/etc/kubernetes/bootstrap-kubelet.conf",
//		Dir: "/var/lib/kubelet/pki", NodeName: "node1", Rotate: true,
//	})
//	…
//	clientset, err := kubernetes.NewForConfig(client.Config())
//	go client.Run(ctx)
//
// The folder Dir has these files:
//
//	kubelet-client-current.pem   a link to the current client certificate with its key
//	kubelet-server-current.pem   a link to the current serving certificate with its key
//	kubelet.crt, kubelet.key     the self-signed serving certificate
//
// The controllers of the cluster, or an administrator, approve the requests.
//
// # What it guarantees
//
//  1. Run replaces a certificate when 70 to 90 % of its life are over. Server.Run also replaces a
//     certificate that does not have all addresses of the node.
//  2. Run repeats a refused, denied or failed request after 2 to 35 seconds, and a request without
//     an approval after 15 minutes. The previous certificate stays in use until it expires.
//  3. A kubeconfig that can be used is not changed.
//  4. Files with keys are readable by their owner only.
//
// # Goroutines and locking
//
// [Client.Run] and [Server.Run] block until ctx is done, and wait for their goroutines. Without
// rotation, Client.Run returns at once. Call Connect only once in a process: client-go starts a
// goroutine for a client whose certificate is in a file, and never stops this goroutine. All
// methods are safe for concurrent use; call Run once.
//
// # Differences from the kubelet
//
//   - With rotation, this package uses the certificate of an existing kubeconfig until 70 to 90 %
//     of its life are over. The kubelet replaces the certificate at once.
//   - Here, rotation requires a client certificate in the kubeconfig. The kubelet also uses other
//     credentials to request the first certificate.
//   - When the client certificate has expired, Run requests another one with the bootstrap
//     kubeconfig. The kubelet exits, and requests the certificate after its restart.
//   - If an agent stops while its first request is pending, the next start sends another request. The
//     kubelet stores the key, and continues to wait for the same request.
//   - client-go's certificate manager, which the kubelet uses, leaves goroutines behind when it is
//     stopped. This package has a loop of its own, and uses client-go to send the requests and to
//     store the certificates.
//   - Here, a client notices a replaced certificate within five minutes. The kubelet checks for a
//     replaced certificate every ten seconds.
//
// # Testing your code with it
//
// Requests need an API server that signs certificates. The test of this package has a small one.
package certificates
