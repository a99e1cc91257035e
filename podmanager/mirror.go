package podmanager

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podspec"
)

// PodClient has the API server requests that a [MirrorClient] sends, for the pods of one
// namespace. The pod client of client-go implements it.
type PodClient interface {
	// Get returns a pod by name.
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	// Create creates a pod. It returns an AlreadyExists error if a pod with this name exists.
	Create(ctx context.Context, pod *corev1.Pod, opts metav1.CreateOptions) (*corev1.Pod, error)
	// Delete deletes a pod. It returns a Conflict error if the pod does not meet a
	// precondition in opts.
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
}

// MirrorConfig connects a [MirrorClient] with the API server.
type MirrorConfig struct {
	// Pods returns the client for a namespace. With client-go it is
	//
	//	func(ns string) podmanager.PodClient { return clientset.CoreV1().Pods(ns) }
	//
	// Required.
	Pods func(namespace string) PodClient
	// Node returns the API server's Node object of this node, from a lister or a client. The
	// Node becomes the owner of the mirrors. Required.
	Node func(ctx context.Context) (*corev1.Node, error)
}

// Validate returns all problems with c as one joined error.
func (c MirrorConfig) Validate() error {
	var errs []error
	if c.Pods == nil {
		errs = append(errs, errors.New("field Pods is required"))
	}
	if c.Node == nil {
		errs = append(errs, errors.New("field Node is required"))
	}
	return errors.Join(errs...)
}

// MirrorClient creates and deletes mirror pods at the API server. Create it with
// [NewMirrorClient]; its methods may be called from any goroutine. It has no state.
type MirrorClient struct{ cfg MirrorConfig }

// NewMirrorClient returns a client for mirror pods. It starts nothing.
func NewMirrorClient(cfg MirrorConfig) (*MirrorClient, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podmanager: invalid config: %w", err)
	}
	return &MirrorClient{cfg: cfg}, nil
}

// Apply carries out a plan of [PlanMirrors] in order. If an action fails, Apply continues
// with the next action. If an action both deletes and creates, and the deletion fails, Apply
// skips the creation. The returned error joins all errors. The next plan contains the failed
// actions again.
func (c *MirrorClient) Apply(ctx context.Context, plan []MirrorAction) error {
	var errs []error
	for _, action := range plan {
		errs = append(errs, c.apply(ctx, action))
	}
	return errors.Join(errs...)
}

func (c *MirrorClient) apply(ctx context.Context, action MirrorAction) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if action.Delete != nil {
		if err := c.Delete(ctx, action.Delete); err != nil {
			return err
		}
	}
	if action.Create != nil {
		return c.Create(ctx, action.Create)
	}
	return nil
}

// Create creates the mirror of a static pod: a copy of the pod with its hash in the mirror
// annotation and the node as its owner. The pod is not modified. If the mirror of this
// version of the pod exists already, and is not being deleted, Create returns nil.
//
// Create returns an error in these cases:
//
//   - The pod is not static, or has no hash annotation, which identifies its version.
//   - The node cannot be read, or has no UID yet.
//   - The node is being deleted: the garbage collector would delete the mirror with the
//     node.
//   - The name belongs to a pod that is not a mirror, to a mirror of another version, or to a
//     mirror that is being deleted.
//   - A request to the API server fails.
func (c *MirrorClient) Create(ctx context.Context, static *corev1.Pod) error {
	if err := c.create(ctx, static); err != nil {
		return fmt.Errorf("create mirror of pod %s: %w", nameOf(static), err)
	}
	return nil
}

func (c *MirrorClient) create(ctx context.Context, static *corev1.Pod) error {
	hash := static.Annotations[podspec.HashAnnotation]
	switch {
	case !podspec.IsStatic(static) || podspec.IsMirror(static):
		return errors.New("the pod is not static")
	case hash == "":
		return fmt.Errorf("the pod has no annotation %s", podspec.HashAnnotation)
	}
	owner, err := c.owner(ctx)
	if err != nil {
		return err
	}
	pods := c.cfg.Pods(static.Namespace)
	_, err = pods.Create(ctx, mirrorOf(static, hash, owner), metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	// The pod that Create returns with an error is empty, so get the existing pod.
	existing, getErr := pods.Get(ctx, static.Name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return errors.Join(err, fmt.Errorf("get the existing pod: %w", getErr))
	case existing == nil:
		return err
	case existing.DeletionTimestamp == nil && Mirrors(existing, static):
		return nil
	case podspec.IsMirror(existing):
		return fmt.Errorf("an older mirror pod with UID %s still exists: %w", existing.UID, err)
	default:
		return fmt.Errorf("the pod with this name, UID %s, is not a mirror: %w", existing.UID, err)
	}
}

// owner returns an owner reference to the node. With this reference, the cluster's garbage
// collector deletes the mirrors when the node is deleted.
func (c *MirrorClient) owner(ctx context.Context) (metav1.OwnerReference, error) {
	node, err := c.cfg.Node(ctx)
	switch {
	case err != nil:
		return metav1.OwnerReference{}, fmt.Errorf("get node: %w", err)
	case node == nil || node.UID == "":
		return metav1.OwnerReference{}, errors.New("the node has no UID yet")
	case node.DeletionTimestamp != nil:
		return metav1.OwnerReference{}, fmt.Errorf("node %s is being deleted", node.Name)
	}
	return metav1.OwnerReference{
		APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID, Controller: new(true),
	}, nil
}

// mirrorOf returns a mirror of the static pod. The two pods share all fields that are not
// set here.
func mirrorOf(static *corev1.Pod, hash string, owner metav1.OwnerReference) *corev1.Pod {
	mirror := *static
	mirror.UID, mirror.ResourceVersion = "", "" // set by the API server
	mirror.Annotations = maps.Clone(static.Annotations)
	mirror.Annotations[podspec.MirrorAnnotation] = hash
	mirror.OwnerReferences = []metav1.OwnerReference{owner}
	return &mirror
}

// Delete deletes a mirror with grace period 0, because a mirror has no containers. The UID
// of the mirror is a precondition, so Delete never deletes a newer pod with the same name.
// It returns nil if the mirror no longer exists, even if another client deleted the
// mirror.
//
// It returns an error if the pod is not a mirror or has no UID, or if the request fails.
func (c *MirrorClient) Delete(ctx context.Context, mirror *corev1.Pod) error {
	if err := c.delete(ctx, mirror); err != nil {
		return fmt.Errorf("delete mirror pod %s: %w", nameOf(mirror), err)
	}
	return nil
}

func (c *MirrorClient) delete(ctx context.Context, mirror *corev1.Pod) error {
	switch {
	case !podspec.IsMirror(mirror):
		return errors.New("the pod is not a mirror")
	case mirror.UID == "":
		return errors.New("the pod has no UID")
	}
	err := c.cfg.Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &mirror.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the mirror no longer exists, but another pod may have its name
	}
	return err
}
