// Besides types, schemas are generated that every answer is held against as it comes.
export default {
  input: "openapi.json",
  output: "client",
  plugins: ["@hey-api/client-fetch", "zod", { name: "@hey-api/sdk", validator: { response: "zod" } }],
};
