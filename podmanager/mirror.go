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

// PodClient is what a [MirrorClient] asks of the API server, for the pods of one
// namespace. It is a part of client-go's PodInterface.
type PodClient interface {
	// Get returns a pod by name.
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Pod, error)
	// Create makes a pod, and fails with AlreadyExists if the name is taken.
	Create(ctx context.Context, pod *corev1.Pod, opts metav1.CreateOptions) (*corev1.Pod, error)
	// Delete deletes a pod, and fails with Conflict if opts has a precondition
	// that it does not meet.
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
	// Node returns this node as the API server has it, from a lister or a client.
	// It owns the mirrors. Required.
	Node func(ctx context.Context) (*corev1.Node, error)
}

// Validate reports every problem with c, joined.
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

// MirrorClient creates and deletes mirror pods at the API server. Make it with
// [NewMirrorClient]; its methods may be called from any goroutine. It keeps nothing.
type MirrorClient struct{ cfg MirrorConfig }

// NewMirrorClient returns a client for mirror pods. It starts nothing.
func NewMirrorClient(cfg MirrorConfig) (*MirrorClient, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("podmanager: invalid config: %w", err)
	}
	return &MirrorClient{cfg: cfg}, nil
}

// Apply does what a plan says, in order: see [PlanMirrors]. An action that fails
// keeps none of the others back; where the deletion fails there is no creation. The
// error joins what went wrong, and a plan made later has it again.
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

// Create makes the mirror of a static pod: the pod itself, with its hash in the
// mirror annotation and the node as its owner. The pod is not modified. If its mirror
// exists already, in this version, that is success.
//
// It fails if the pod is no static pod, or has no hash to tell its versions apart;
// if the node is not to be had, has no UID yet or is being deleted, for whatever it
// owns would be collected with it; and if another pod has the name.
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
		return errors.New("it is not a static pod")
	case hash == "":
		return fmt.Errorf("it has no annotation %s", podspec.HashAnnotation)
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
	// What Create returns beside an error is empty, and says nothing about whom
	// the name belongs to.
	there, getErr := pods.Get(ctx, static.Name, metav1.GetOptions{})
	switch {
	case getErr != nil:
		return errors.Join(err, fmt.Errorf("look at the pod that exists: %w", getErr))
	case there == nil:
		return err
	case there.DeletionTimestamp == nil && Mirrors(there, static):
		return nil
	case podspec.IsMirror(there):
		return fmt.Errorf("an older mirror is still there, with UID %s: %w", there.UID, err)
	default:
		return fmt.Errorf("the name belongs to a pod that is no mirror, with UID %s: %w", there.UID, err)
	}
}

// owner makes the API server collect mirrors together with their node.
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

// mirrorOf shares with the static pod what nobody changes.
func mirrorOf(static *corev1.Pod, hash string, owner metav1.OwnerReference) *corev1.Pod {
	mirror := *static
	mirror.UID, mirror.ResourceVersion = "", "" // the API server's to give
	mirror.Annotations = maps.Clone(static.Annotations)
	mirror.Annotations[podspec.MirrorAnnotation] = hash
	mirror.OwnerReferences = []metav1.OwnerReference{owner}
	return &mirror
}

// Delete deletes a mirror without grace, for it has no containers, and only if it has
// the UID that the given one has: never a successor of its name. When it returns nil
// that mirror is gone, whoever deleted it.
//
// It fails if the pod is no mirror or has no UID.
func (c *MirrorClient) Delete(ctx context.Context, mirror *corev1.Pod) error {
	if err := c.delete(ctx, mirror); err != nil {
		return fmt.Errorf("delete mirror pod %s: %w", nameOf(mirror), err)
	}
	return nil
}

func (c *MirrorClient) delete(ctx context.Context, mirror *corev1.Pod) error {
	switch {
	case !podspec.IsMirror(mirror):
		return errors.New("it is not a mirror")
	case mirror.UID == "":
		return errors.New("it has no UID")
	}
	err := c.cfg.Pods(mirror.Namespace).Delete(ctx, mirror.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      &metav1.Preconditions{UID: &mirror.UID},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // it is gone, or the name is another's by now
	}
	return err
}
