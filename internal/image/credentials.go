package image

import (
	"context"

	"github.com/moby/buildkit/session/auth"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sandbox-lease/terraform-provider-sandbox/internal/image/registry"
)

// credentials answers BuildKit's requests for registry credentials to pull base images.
type credentials struct {
	auth.UnimplementedAuthServer // the engine fetches tokens itself

	registries *registry.Client
}

// Register makes it a session.Attachable.
func (c credentials) Register(s *grpc.Server) { auth.RegisterAuthServer(s, c) }

// Credentials returns the credentials of a registry; empty ones mean anonymous.
func (c credentials) Credentials(ctx context.Context, req *auth.CredentialsRequest) (*auth.CredentialsResponse, error) {
	found, err := c.registries.ForPull(ctx, req.GetHost())
	if err != nil {
		return nil, status.Error(codes.FailedPrecondition, err.Error())
	}
	if found.IdentityToken != "" {
		return &auth.CredentialsResponse{Secret: found.IdentityToken}, nil
	}
	return &auth.CredentialsResponse{Username: found.Username, Secret: found.Password}, nil
}
